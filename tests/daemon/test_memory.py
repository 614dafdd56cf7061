"""What a daemon that is armed again and again keeps."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref

import pytest

from ebbtide.daemon import freeze_what_stays

#: Blocks of some threads, all of them held, and a large one after a larger one was freed. Says how many heaps
#: there are, and how many blocks outside of them.
ALLOCATING = """
import ctypes, threading
from ebbtide.daemon_assembly import keep_one_heap
library = ctypes.CDLL(None)
library.malloc.restype = library.fopen.restype = ctypes.c_void_p
class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena o s hblks h u f uordblks fordblks k".split()]
library.mallinfo2.restype = Mallinfo
{first}
together = threading.Barrier(4)
def hold():
    together.wait()
    library.malloc(1000)
    together.wait()
threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
library.free(ctypes.c_void_p(library.malloc(1024 * 1024)))
before = library.mallinfo2().hblks
library.malloc(512 * 1024)
file = ctypes.c_void_p(library.fopen(b"/dev/stdout", b"w"))
library.malloc_info(0, file)
library.fclose(file)
print("outside", library.mallinfo2().hblks - before)
"""


class Cycle:
    """As a pod and its containers, which know each other."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_frozen_and_has_gone_is_freed() -> None:
    """A pod that was there when the node was armed, and is not when it is armed the next time."""
    made = Cycle()
    kept = weakref.ref(made)
    freeze_what_stays()
    assert gc.get_freeze_count() > 0
    del made
    freeze_what_stays()
    assert kept() is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="musl has one heap")
@pytest.mark.parametrize(("first", "heaps", "outside"), [("", range(2, 10), 0), ("keep_one_heap()", [1], 1)])
def test_free_memory_is_in_one_place(first: str, heaps: range | list[int], outside: int) -> None:
    """The C library has one heap, without large blocks in it; left alone, it is otherwise."""
    command = (sys.executable, "-c", ALLOCATING.replace("{first}", first))
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count("<heap nr=") in heaps
    assert f"outside {outside}\n" in said
