"""What a server's refusal means, in a sentence, and what to type next.

Servers answer a refused login with two words and a closed socket, and a failed TLS handshake
with a library's error. The errors here name which of the few usual causes it was.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import time

from antiphon.errors import AntiphonError, EngineDenied, Misconfigured, PortTaken, Unavailable

MIN_VERSION = (2, 15)
NO_TLS = "the server offers no TLS"
IN_THE_CLEAR = "a login would have been sent unencrypted"
_USER_INFO = re.compile(r"//[^@/,]*@")
_HOST_MISMATCH = frozenset({62, 64})
"""OpenSSL: the host's name, or its address, is not in the certificate."""
_OUT_OF_DATE = frozenset({9, 10})
_LOG_HEAD = re.compile(r"^\[\d+\] [\d/]+ [\d:.]+ ")
_REJOIN = "ask the mesh's owner, then: antiphon join TICKET"


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, so that nobody else is on the way."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def without_secrets(url: str) -> str:
    """The URL without its password, so that it can be shown."""
    return _USER_INFO.sub("//", url)


def check_version(version: str) -> None:
    """`Misconfigured` if the server is too old for what we rely on."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < MIN_VERSION:
        need = ".".join(map(str, MIN_VERSION))
        raise Misconfigured(
            f"Antiphon needs a NATS server of version {need} or newer; this one is {version}",
            hint="upgrade nats-server, or pip install 'antiphon[server]' for one that fits",
        )


def is_login_refusal(words: str) -> bool:
    """Whether the server's error is about the login; a slow handshake is not."""
    lowered = words.lower()
    if "timeout" in lowered:
        return False
    return "authorization violation" in lowered or "authentication" in lowered


def login_ended(words: str, expires_s: int | None) -> EngineDenied:
    """Why a login that worked, or should have, is now refused."""
    lowered = words.lower()
    if "expired" in lowered or (expires_s is not None and expires_s <= time.time()):
        why = "it has expired"
    elif "revoked" in lowered:
        why = "it was revoked"
    else:
        return EngineDenied(
            f"the NATS server refuses this login: {_plain(words)}",
            hint=f"it was revoked, or is for another server: {_REJOIN}",
        )
    return EngineDenied(f"the NATS server ended this login: {why}", hint=_REJOIN)


def not_started(words: str, where: str) -> AntiphonError:
    """Why our own server ended at once, by the last line that it logged."""
    if "address already in use" in words:
        return PortTaken(
            f"another program already listens at {where}",
            hint=f"end it: 'ss -ltnp' shows what listens at port {where.rpartition(':')[2]}",
        )
    if "bind: permission denied" in words:
        return Misconfigured(
            f"this user may not listen at {where}", hint="use a port above 1023, such as 4222"
        )
    if "cannot assign requested address" in words or "no such host" in words:
        return Misconfigured(
            f"{where} is not an address of this machine",
            hint="use 0.0.0.0 for all its addresses, 127.0.0.1 for this machine only",
        )
    return Unavailable(f"nats-server ended while starting: {_LOG_HEAD.sub('', words)}")


def explain(
    url: str, error: BaseException, *, is_signed: bool, expires_s: int | None, has_tls: bool
) -> AntiphonError:
    """Why the first connection failed."""
    url = without_secrets(url)
    words = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLError):
        return _explain_tls(url, error, has_tls=has_tls)
    if NO_TLS in words or IN_THE_CLEAR in words:
        return Misconfigured(
            f"the NATS server at {url} offers no TLS: nothing was sent to it",
            hint="it is not the mesh's server, or it was started without certificates",
        )
    if is_login_refusal(words):
        if is_signed:
            ended = login_ended(words, expires_s)
            return EngineDenied(f"at {url}: {ended.message}", hint=ended.hint)
        return EngineDenied(
            f"the NATS server at {url} refused the credentials: {_plain(words)}",
            hint="check user and password, or the ticket that you joined with",
        )
    return Unavailable(
        f"no NATS server answered at {url}: {words}",
        hint="is it running? 'antiphon up' starts a mesh's server, 'antiphon dev' one to try out",
    )


def _explain_tls(url: str, error: ssl.SSLError, *, has_tls: bool) -> Misconfigured:
    ticket = "use the certificate of the ticket that you joined with, or join again"
    if not isinstance(error, ssl.SSLCertVerificationError):
        return Misconfigured(
            f"the NATS server at {url} and this machine found no common TLS: {_reason(error)}",
            hint="is there a NATS server at that address? it must speak TLS 1.2 or newer",
        )
    if error.verify_code in _HOST_MISMATCH:
        return Misconfigured(
            f"the NATS server at {url} shows a certificate for another host: "
            f"{error.verify_message}",
            hint="use a name or address that the server was set up for: antiphon up --host NAME",
        )
    if error.verify_code in _OUT_OF_DATE:
        return Misconfigured(
            f"the certificate of the NATS server at {url} is out of date: {error.verify_message}",
            hint="restart 'antiphon up' there, which renews it; and check this machine's clock",
        )
    if not has_tls:
        return Misconfigured(
            f"the NATS server at {url} wants TLS, and this machine has no certificate to check "
            "it by",
            hint=ticket,
        )
    return Misconfigured(
        f"the NATS server at {url} is not the one that this machine knows: its certificate is "
        f"from another authority ({error.verify_message})",
        hint=ticket,
    )


def _plain(words: str) -> str:
    return words.removeprefix("nats: ").strip("'")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "handshake failed").replace("_", " ").lower()
