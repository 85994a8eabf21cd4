"""The filter, run here instruction by instruction; `test_running.py` has the kernel run it."""

import ctypes
import ctypes.util
import struct

import pytest

from antiphon.sandbox.isolation import seccomp

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
ALL = {**seccomp.DENIED, **seccomp.ABSENT, **seccomp.UNCOUNTED, **seccomp.BY_ARGUMENT}


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel would decide about one call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *padded)
    lines = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        operation, if_true, if_false, operand = lines[at]
        at += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
            continue
        holds = {
            0x15: value == operand,
            0x35: value >= operand,
            0x45: bool(value & operand),
        }[operation]
        at += if_true if holds else if_false


def error(number: int) -> int:
    return seccomp.ERRNO | number


@pytest.fixture(params=ARCHITECTURES)
def machine(request):
    return request.param


@pytest.fixture
def ask(machine):
    program = seccomp.program(machine)
    return lambda number, *arguments: verdict(program, ARCHITECTURES[machine], number, *arguments)


def numbers(table, machine):
    column = list(ARCHITECTURES).index(machine)
    return {name: row[column] for name, row in table.items() if row[column] is not None}


def test_every_denied_call_is_refused_and_its_neighbours_are_not(machine, ask):
    denied = numbers(seccomp.DENIED, machine)
    named = set(numbers(ALL, machine).values())
    for number in denied.values():
        assert ask(number) == error(EPERM)
    for number in set(range(seccomp.NEWEST + 1)) - named:
        assert ask(number) == seccomp.ALLOW


def test_calls_that_do_not_exist_for_a_job(machine, ask):
    for number in numbers(seccomp.ABSENT, machine).values():
        assert ask(number) == error(ENOSYS)
    assert ask(seccomp.NEWEST + 1) == error(ENOSYS)
    assert ask(0x3FFFFFFF) == error(ENOSYS)


def test_another_architecture_is_the_end(machine):
    program = seccomp.program(machine)
    others = {I386, *ARCHITECTURES.values()} - {ARCHITECTURES[machine]}
    for other in others:
        assert verdict(program, other, 0) == seccomp.KILL


def test_the_third_way_into_an_x86_kernel_is_the_end():
    program = seccomp.program("x86_64")
    assert verdict(program, ARCHITECTURES["x86_64"], 0x40000000 | 101) == seccomp.KILL


@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_processes_can_be_made_and_namespaces_cannot(machine, ask, flag):
    clone = numbers(seccomp.BY_ARGUMENT, machine)["clone"]
    assert ask(clone, 0x11 | flag) == error(EPERM)
    assert ask(clone, 0x3D0F00) == seccomp.ALLOW  # a thread, as the C library makes them
    assert ask(clone, 0x11) == seccomp.ALLOW


def test_only_the_usual_kinds_of_socket(machine, ask):
    socket = numbers(seccomp.BY_ARGUMENT, machine)["socket"]
    for family in range(64):
        allowed = family in {1, 2, 10, 16}
        assert (ask(socket, family, 1, 0) == seccomp.ALLOW) == allowed, family
    assert ask(socket, 16, 3, 12) == error(EAFNOSUPPORT)  # the packet filter's own door
    assert ask(socket, 40, 1, 0) == error(EAFNOSUPPORT)  # vsock
    # The kernel looks at the low half alone, and so does the filter.
    assert ask(socket, (1 << 32) | 40, 1, 0) == error(EAFNOSUPPORT)


def test_terminals_cannot_be_typed_into_and_personalities_not_changed(machine, ask):
    known = numbers(seccomp.BY_ARGUMENT, machine)
    assert ask(known["ioctl"], 0, 0x5412) == error(EPERM)
    assert ask(known["ioctl"], 0, (7 << 32) | 0x5412) == error(EPERM)
    assert ask(known["ioctl"], 0, 0x541C) == error(EPERM)
    assert ask(known["ioctl"], 0, 0x5401) == seccomp.ALLOW
    assert ask(known["personality"], 0) == seccomp.ALLOW
    assert ask(known["personality"], 0xFFFFFFFF) == seccomp.ALLOW
    assert ask(known["personality"], 0x40000) == error(EPERM)


def test_memory_that_nobody_counts_is_denied_where_there_is_no_cgroup(machine):
    architecture = ARCHITECTURES[machine]
    strict = seccomp.program(machine, memory_is_counted=False)
    for number in numbers(seccomp.UNCOUNTED, machine).values():
        assert verdict(strict, architecture, number) == error(ENOSYS)
        assert verdict(seccomp.program(machine), architecture, number) == seccomp.ALLOW


def test_the_numbers_are_those_that_libseccomp_knows(machine):
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not here to be asked")
    resolve = ctypes.CDLL(name).seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    for call, number in numbers(ALL, machine).items():
        known = resolve(ARCHITECTURES[machine], call.encode())
        if known != -1:  # older than the call
            assert known == number, call


def test_machines_without_a_table_are_told_apart():
    assert seccomp.is_known("x86_64")
    assert not seccomp.is_known("riscv64")
