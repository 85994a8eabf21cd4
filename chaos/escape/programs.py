"""The programs of `chaos escape`, as they run inside a command's sandbox.

Each gets one argument, a JSON object with places, process ids and ports that are worth attacking,
and never the canary itself. It says `REACHED` when it got something that needs no canary, and
prints what it finds where a canary may be in it. Every one is bounded, because each is also run
without a sandbox, to see that it would have worked.
"""

from __future__ import annotations

PRELUDE = """
import ctypes, glob, json, mmap, os, signal, socket, stat, subprocess, sys, time
know = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    return libc.syscall(ctypes.c_long(know["calls"][name]), *arguments)
def reached(what):
    print("REA" + "CHED", what, flush=True)  # apart, for those that print their own text
def show(path):
    try:
        with open(path, "rb", buffering=0) as file:
            sys.stdout.buffer.write((file.read(4096) or b"") + b"\\n")
            sys.stdout.flush()
    except OSError as problem:
        print(path, "-", problem.strerror)
"""

READ_THE_KEY = """
show(know["key"])
for up in range(1, 12):
    show("../" * up + know["key"].lstrip("/"))
"""
READ_THE_STATE = """
for folder, _, names in os.walk(know["tools"], followlinks=True):
    for name in names:
        show(os.path.join(folder, name))
for key in know["state_keys"]:
    for root in ("", "/proc/self/root", "/proc/1/root", "../../../../../.."):
        show(root + key)
"""
LIFT_THE_MASK = """
for key in know["state_keys"]:
    state = os.path.dirname(key)
    try:
        os.chmod(state, 0o755)
    except OSError as problem:
        print(state, problem.strerror)
    if os.geteuid() != 0:
        for flags in (0, 2, 8):
            print("umount", libc.umount2(state.encode(), flags))
        print("remount", libc.mount(None, state.encode(), None, 0x20, None))
        print("unshare", libc.unshare(0x10020000))
        print("umount", libc.umount2(state.encode(), 2))
    show(key)
"""
READ_THE_HOME = """
for folder in (know["home"], os.path.dirname(know["home"]), "/home", "/root"):
    try:
        print(folder, os.listdir(folder))
    except OSError as problem:
        print(folder, "-", problem.strerror)
"""
OTHER_PROCESSES = """
for path in glob.glob("/proc/[0-9]*/cmdline") + ["/proc/%d/cmdline" % know["decoy"]]:
    show(path)
"""
WRITE_OUTSIDE = """
for folder in (know["outside"], "../../.." + know["outside"], "/proc/1/root" + know["outside"]):
    try:
        open(folder + "/mark", "w").write("was here")
    except OSError as problem:
        print(folder, "-", problem.strerror)
for path in ("/", "/etc", "/usr", "/usr/lib", "/run", "/var", "/dev"):
    if path != know["outside"] and os.access(path, os.W_OK) and os.geteuid() != 0:
        reached(path + " is writable")
"""
TCP = """
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as door:
            door.settimeout(1)
            door.connect((address, know["tcp"]))
            door.sendall(b"hello")
    except OSError as problem:
        print(address, problem)
"""
UDP = """
for address in ("127.0.0.1", *know["addresses"]):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            door.sendto(b"hello", (address, know["udp"]))
    except OSError as problem:
        print(address, problem)
time.sleep(0.05)
"""
UNNAMED_SOCKET = """
try:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect("\\0" + know["abstract"])
        door.sendall(b"hello")
except OSError as problem:
    print(problem)
"""
PTRACE = """
ATTACH, DETACH, TRACEME = 16, 17, 0
for pid in (know["decoy"], 1):
    if pid == 1 and os.geteuid() == 0:
        continue  # never the machine's own first process
    if libc.ptrace(ATTACH, pid, None, None) == 0:
        os.waitpid(pid, 0x40000000)
        libc.ptrace(DETACH, pid, None, None)
        reached("attached to %d" % pid)
    else:
        print("attach", pid, os.strerror(ctypes.get_errno()))
child = os.fork()
if child == 0:
    os._exit(7 if libc.ptrace(TRACEME, 0, None, None) == 0 else 0)
if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:
    reached("tracing is allowed")
"""
MOUNT = """
place = know["mount_point"] if os.path.isdir(know["mount_point"]) else "mnt"
os.makedirs(place, exist_ok=True)
if libc.mount(b"none", place.encode(), b"tmpfs", 0, None) == 0:
    reached("mounted")
    libc.umount2(place.encode(), 2)
else:
    print(os.strerror(ctypes.get_errno()))
if os.geteuid() != 0:
    for path in (b"/", b"/usr", b"/proc"):
        if libc.mount(None, path, None, 0x1020, None) == 0:
            reached("remounted")
    if call("fsopen", b"tmpfs", 0) >= 0 or call("open_tree", -100, b"/", 1) >= 0:
        reached("the new way to mount")
"""
NESTED_USERNS = """
NEWUSER, NEWNS = 0x10000000, 0x20000
def tries(action):
    child = os.fork()
    if child == 0:
        os._exit(7 if action() == 0 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if tries(lambda: libc.unshare(NEWUSER)) or tries(lambda: libc.unshare(NEWUSER | NEWNS)):
    reached("unshare")
got = call("clone", NEWUSER | 17, 0, 0, 0, 0)
if got == 0:
    os._exit(0)
if got > 0:
    os.waitpid(got, 0)
    reached("clone")
wanted = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, 17)
got = call("clone3", wanted, 88)
if got == 0:
    os._exit(0)
if got > 0:
    os.waitpid(got, 0)
    reached("clone3")
"""
FORK_BOMB = """
born = []
signal.alarm(8)
try:
    while len(born) < 120:
        child = os.fork()
        if child == 0:
            time.sleep(1)
            os._exit(0)
        born.append(child)
except OSError as problem:
    print(problem.strerror)
print(len(born), "alive")
if len(born) >= 100:
    reached("a hundred processes")
for child in born:
    os.kill(child, signal.SIGKILL)
"""
MEMORY_BOMB = """
EACH, MIB = 40, 1 << 20
def hold():
    held = mmap.mmap(-1, EACH * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(held), 4096):
        held[at] = 1
    return held
def hold_nameless():
    held = os.memfd_create("bomb")
    for _ in range(EACH):
        os.write(held, b"x" * MIB)
    return held
tell, told = os.pipe()
for number in range(6):
    if os.fork() == 0:
        signal.alarm(4)
        try:
            kept = hold() if number % 3 else hold_nameless()
        except (OSError, MemoryError):
            os._exit(0)
        time.sleep(1.2)
        os.write(told, b"x")
        time.sleep(0.3)
        os._exit(0)
os.close(told)
total = 0
while got := os.read(tell, 1):
    total += EACH
print(total, "MiB held for a second")
if total >= 200:
    reached("two hundred MiB")
"""
DISK_FILL = """
kept, total = [], 0
for number in range(8):
    for folder in (".", "/tmp", "/dev/shm"):
        path = "%s/antiphon-fill-%d-%d" % (folder, os.getpid(), number)
        try:
            kept.append(open(path, "wb", buffering=0))
            os.unlink(path)
            for _ in range(4):
                total += kept[-1].write(b"x" * (1 << 20))
        except OSError as problem:
            print(path, problem.strerror)
print(total, "bytes at once")
if total > 48 << 20:
    reached("more than all its directories")
"""
SIGNAL_THE_WORKER = """
for pid in (know["worker"], know["decoy"]):
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError as problem:
        print(pid, problem.strerror)
"""
PROC_TRICKS = """
for who in ("1", str(os.getppid()), str(know["worker"]), str(know["decoy"]), "self"):
    show("/proc/%s/root%s" % (who, know["key"]))
    show("/proc/%s/cwd/%s" % (who, os.path.basename(know["key"])))
    for number in range(64):
        for path in ("", "/..", "/../../../.." ):
            found = "/proc/%s/fd/%d%s" % (who, number, path)
            if os.path.isdir(found):
                show(found + know["key"])
for switch in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
               "/proc/self/oom_score_adj", "/proc/%d/mem" % know["decoy"]):
    try:
        os.close(os.open(switch, os.O_WRONLY))  # opened, never written to
        if switch != "/proc/self/oom_score_adj":
            reached(switch)
    except OSError as problem:
        print(switch, problem.strerror)
show("/proc/kcore")
"""
LINKS_OUT = """
os.symlink(know["key"], "link.txt")
os.symlink(os.path.dirname(know["key"]), "folder")
os.makedirs("deep", exist_ok=True)
os.symlink("../" * 12 + know["key"].lstrip("/"), "deep/relative.txt")
try:
    os.link(know["key"], "hard.txt")
except OSError as problem:
    print(problem.strerror)
show("link.txt")
"""
SETUID = """
if os.geteuid() == 0:
    reached("root already")
for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0)):
    try:
        change()
        reached("became root")
    except OSError as problem:
        print(problem.strerror)
if os.geteuid() != 0:
    for name in ("/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp"):
        if os.path.exists(name) and os.stat(name).st_mode & stat.S_ISUID:
            asked = subprocess.Popen([name], stdin=subprocess.PIPE, stdout=-3, stderr=-3)
            time.sleep(0.1)
            try:
                uids = [x for x in open("/proc/%d/status" % asked.pid) if x.startswith("Uid:")]
                print(name, uids)
                if uids and uids[0].split()[2] == "0":
                    reached(name)
            except OSError as problem:
                print(name, problem.strerror)
            asked.kill()
            asked.wait()
"""
KEYRING = """
key = call("request_key", b"user", know["key_name"].encode(), None, 0)
print("request_key", key, os.strerror(ctypes.get_errno()))
found = ctypes.create_string_buffer(256)
got = call("keyctl", 11, key, found, 256) if key > 0 else -1
if got > 0:
    print(found.raw[:got].decode())
if call("add_key", b"user", b"antiphon-probe", b"x", 1, -2) > 0:
    reached("a key of its own")
"""
DEVICES = """
show(know["shared_memory"])
for path in know["devices"]:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        reached(path)
    except OSError as problem:
        print(path, problem.strerror)
try:
    os.mknod("disk", 0o600 | stat.S_IFBLK, know["disk"])
    os.close(os.open("disk", os.O_RDONLY))
    reached("a disk of its own making")
except OSError as problem:
    print("mknod", problem.strerror)
for number in range(256):
    if os.path.exists("/dev/pts/%d" % number):
        reached("/dev/pts/%d" % number)
"""
ENVIRONMENT = """
print(dict(os.environ))
for path in glob.glob("/proc/[0-9]*/environ") + ["/proc/%d/environ" % know["worker"]]:
    show(path)
"""
OVERLONG_OUTPUT = """
for _ in range(32):
    sys.stdout.buffer.write(b"x" * (1 << 20))
"""
SURVIVING_CHILD = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        empty = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(empty, number)
        os.execv("/bin/sleep", ["sleep", know["nap"]])
    os._exit(0)
os.wait()
time.sleep(0.1)
"""
KERNEL_DOORS = """
room = ctypes.create_string_buffer(256)
for name, arguments in (
    ("io_uring_setup", (4, room)),
    ("userfaultfd", (1,)),
    ("bpf", (0, (ctypes.c_uint32 * 16)(2, 4, 4, 1), 64)),
    ("perf_event_open", ((ctypes.c_uint32 * 32)(1, 128, 1), 0, -1, -1, 0)),
    ("memfd_secret", (0,)),
    ("personality", (0x0040000,)),
    ("syslog", (10, None, 0)),
    ("kcmp", (os.getpid(), os.getpid(), 1, 0, 0)),
):
    got = call(name, *arguments)
    print(name, got, os.strerror(ctypes.get_errno()))
    if got >= 0:
        reached(name)
handle, mount_id = (ctypes.c_uint32 * 34)(128, 0), ctypes.c_int(0)
if call("name_to_handle_at", -100, b".", handle, ctypes.byref(mount_id), 0) == 0:
    reached("name_to_handle_at")
for family in (17, 38, 40):  # packet, the kernel's cryptography, the bus to a machine's host
    for kind in (1, 3, 5):
        try:
            socket.socket(family, kind).close()
            reached("socket family %d" % family)
        except OSError as problem:
            print(family, kind, problem.strerror)
"""
