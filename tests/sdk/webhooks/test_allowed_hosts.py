"""Requests go to the hosts on the list, and to nothing inside by accident."""

import pytest

from antiphon.errors import Misconfigured, Rejected
from antiphon.sdk.webhooks.allowed_hosts import AllowedHosts

LIST = AllowedHosts(
    ["hooks.example", "*.wild.example:8443", "http://plain.example", "[2001:db8::1]"]
)


@pytest.mark.parametrize(
    "url, host",
    [
        ("https://hooks.example/a?b=c", "hooks.example"),
        ("https://HOOKS.example:443", "hooks.example"),
        ("https://hooks.example./x", "hooks.example"),
        ("https://a.b.wild.example:8443/", "a.b.wild.example"),
        ("http://plain.example/x", "plain.example"),
        ("https://[2001:db8::1]/", "2001:db8::1"),
    ],
)
def test_what_is_on_the_list_is_found(url, host):
    assert LIST.target(url).host == host


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",
        "https://hooks.example:444/",
        "https://hooks.example.attacker.example/",
        "https://attacker.example/hooks.example",
        "https://attacker.example#hooks.example",
        "https://hooks.example@attacker.example/",
        "https://user:word@hooks.example/",
        "https://attacker.example\\@hooks.example/",
        "https://hooks.example\r\nHost: x/",
        "https://hooks.example /",
        "https://wild.example:8443/",
        "https://xwild.example:8443/",
        "https://*.wild.example:8443/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://[::1]/",
        "https://hooks.example:99999/",
        "https://hööks.example/",
        "file:///etc/passwd",
        "gopher://hooks.example/",
        "//hooks.example/",
        "",
        "https://",
        "https://hooks.example/" + "a" * 2_000,
    ],
)
def test_what_is_not_on_the_list_is_refused(url):
    with pytest.raises(Rejected) as refused:
        LIST.target(url)
    assert refused.value.reason in {"url", "host"}


INSIDE = (
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.0.1"),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("fec0::1", "feff::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
)


def test_an_address_that_is_not_public_is_refused_unless_the_list_has_it():
    for address in INSIDE:
        with pytest.raises(Rejected):
            LIST.check_address(address)
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "2001:db8::1"):
        LIST.check_address(address)
    inside = AllowedHosts(["ci.internal", "10.0.0.0/8", "http://127.0.0.1:8000"])
    for address in ("10.200.0.1", "127.0.0.1", "::ffff:10.0.0.1"):
        inside.check_address(address)
    for address in ("127.0.0.2", "192.168.0.1", "::1"):
        with pytest.raises(Rejected):
            inside.check_address(address)
    assert inside.target("http://127.0.0.1:8000/x").port == 8000
    with pytest.raises(Rejected):
        inside.target("https://10.0.0.1/")  # a network permits addresses, and names no host


def test_an_address_of_version_6_can_be_on_the_list_whatever_is_inside_it():
    here = AllowedHosts(["http://[::1]:8000", "2002:7f00:1::/48"])
    assert here.target("http://[::1]:8000/x").host == "::1"
    for address in ("::1", "2002:7f00:1::"):
        here.check_address(address)
    for address in ("0.0.0.1", "127.0.0.1", "::127.0.0.1", "::ffff:127.0.0.1", "::2", "::"):
        with pytest.raises(Rejected):
            here.check_address(address)


@pytest.mark.parametrize(
    "entry", ["", "https://a/path", "ftp://a", "a b", "*", "*.", "u@a", "127.1", "a:x", "-a"]
)
def test_a_list_with_what_is_no_host_is_refused(entry):
    with pytest.raises(Misconfigured):
        AllowedHosts([entry])


def test_a_list_without_a_host_is_refused():
    for entries in ((), ("10.0.0.0/8",)):
        with pytest.raises(Misconfigured):
            AllowedHosts(entries)
