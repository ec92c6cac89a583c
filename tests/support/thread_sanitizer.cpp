// Linked into everything that the thread sanitizer watches. libstdc++ counts the references to an exception in code
// that the sanitizer does not see, and so it takes the end of an exception that two threads looked at for a race. This
// says what is true: whoever gives up a reference is seen by whoever gives up the next one.
#include <dlfcn.h>

#include <exception>

#ifdef __GLIBCXX__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

void std::__exception_ptr::exception_ptr::_M_release() noexcept {
  using release = void (*)(exception_ptr*);
  static const auto real =
      reinterpret_cast<release>(dlsym(RTLD_NEXT, "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv"));
  if (_M_exception_object != nullptr) {
    __tsan_release(_M_exception_object);
    __tsan_acquire(_M_exception_object);
  }
  real(this);
}
#endif
