// Debian's libyaml-cpp.a is not position independent: its shared pointers read this variable of glibc as if it lay in
// the same file, which a shared library cannot have. A copy of our own does lie there. Its value, "there may be other
// threads", is always right: it only costs shared pointers an atomic instruction.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
