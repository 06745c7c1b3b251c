// A library for LD_PRELOAD that traces the C library's calls on files and injects a fault into one of them. It counts
// the calls on files below the directory LOCKSTEP_TEST_WATCH, from 1:
//   LOCKSTEP_TEST_TRACE=FILE      appends a line per call to FILE: "fsync .m.h5.1f09c3d2.tmp"
//   LOCKSTEP_TEST_FAULT="N HOW"   injects a fault into call N. HOW: a number makes it fail with that errno; "before" or
//                                 "after" kills the process there; "half" writes half of the bytes
//   LOCKSTEP_TEST_FAULT_CALL=NAME   counts only calls of this name: "fsync"
//   LOCKSTEP_TEST_FAULT_ONCE=FILE   injects it in one process only, the one that creates FILE
//   LOCKSTEP_TEST_READ_ONLY=FILE  while FILE exists, nothing below the watched directory can be written or created, as
//   on
//       a file system that became read-only after an error
//   LOCKSTEP_TEST_NO_THREADS=1    no thread can be started
//   LOCKSTEP_TEST_NO_PROCESSES=FILE  no process can be started while FILE exists, as at a limit of processes
//   LOCKSTEP_TEST_NO_LOCKS=DIRECTORY  files below it cannot be locked
//   LOCKSTEP_TEST_NFS_LOCKS=DIRECTORY  files below it that are not open for writing cannot be locked, as on NFS
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "";
}

bool is_read_only(const std::string& path) {
  static const std::string watched = environment("LOCKSTEP_TEST_WATCH");
  static const std::string flag = environment("LOCKSTEP_TEST_READ_ONLY");
  return !flag.empty() && path.compare(0, watched.size(), watched) == 0 && access(flag.c_str(), F_OK) == 0;
}

/// The fault to inject into a call.
struct Fate {
  int error = 0;
  bool after = false;
  bool half = false;
};

Fate decide(const char* call, const std::string& path, bool writes = true) {
  static const std::string watched = environment("LOCKSTEP_TEST_WATCH");
  static const std::string trace = environment("LOCKSTEP_TEST_TRACE");
  static const std::string fault = environment("LOCKSTEP_TEST_FAULT");
  static const std::string only = environment("LOCKSTEP_TEST_FAULT_CALL");
  static const std::string once = environment("LOCKSTEP_TEST_FAULT_ONCE");
  static int calls = 0;
  if (writes && is_read_only(path)) return {.error = EROFS};
  if (!only.empty() && std::strncmp(call, only.c_str(), only.size()) != 0) return {};
  if (watched.empty() || path.compare(0, watched.size(), watched) != 0) return {};
  ++calls;
  if (!trace.empty()) {
    const std::string line = std::string(call) + " " + path.substr(path.rfind('/') + 1) + "\n";
    const int file = real<int (*)(const char*, int, ...)>("open")(trace.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    (void)!real<ssize_t (*)(int, const void*, std::size_t)>("write")(file, line.data(), line.size());
    real<int (*)(int)>("close")(file);
  }
  const std::size_t space = fault.find(' ');
  if (space == std::string::npos || std::atoi(fault.c_str()) != calls) return {};
  if (!once.empty()) {
    const int file = real<int (*)(const char*, int, ...)>("open")(once.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file < 0) return {};
    real<int (*)(int)>("close")(file);
  }
  const std::string how = fault.substr(space + 1);
  if (how == "before") raise(SIGKILL);
  return {std::atoi(how.c_str()), how == "after", how == "half"};
}

/// Makes the call, or injects the fault.
template <class Call>
auto meet(const Fate& fate, Call call) -> decltype(call()) {
  if (fate.error != 0) {
    errno = fate.error;
    return -1;
  }
  const auto result = call();
  if (fate.after) raise(SIGKILL);
  return result;
}

bool can_start_processes() {
  const std::string limit = environment("LOCKSTEP_TEST_NO_PROCESSES");
  return limit.empty() || access(limit.c_str(), F_OK) != 0;
}

int open_as(const char* name, const char* path, int flags, mode_t mode) {
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  return meet(decide("open", path, writes),
              [&] { return real<int (*)(const char*, int, ...)>(name)(path, flags, mode); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_as("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_as("open64", path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  const Fate fate = decide("write", path_of(descriptor));
  const std::size_t taken = fate.half ? size / 2 : size;
  return meet(fate,
              [&] { return real<ssize_t (*)(int, const void*, std::size_t)>("write")(descriptor, bytes, taken); });
}

ssize_t pwrite(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  const Fate fate{.error = is_read_only(path_of(descriptor)) ? EROFS : 0};
  using Write = ssize_t (*)(int, const void*, std::size_t, off_t);
  return meet(fate, [&] { return real<Write>("pwrite")(descriptor, bytes, size, offset); });
}

int mkdir(const char* path, mode_t mode) {
  const Fate fate{.error = is_read_only(path) ? EROFS : 0};
  return meet(fate, [&] { return real<int (*)(const char*, mode_t)>("mkdir")(path, mode); });
}

int fsync(int descriptor) {
  return meet(decide("fsync", path_of(descriptor)), [&] { return real<int (*)(int)>("fsync")(descriptor); });
}

int close(int descriptor) {
  const Fate fate = decide("close", path_of(descriptor), false);
  if (fate.error != 0) real<int (*)(int)>("close")(descriptor);  // close() releases the descriptor even if it fails
  return meet(fate, [&] { return real<int (*)(int)>("close")(descriptor); });
}

int rename(const char* from, const char* to) {
  return meet(decide("rename", from), [&] { return real<int (*)(const char*, const char*)>("rename")(from, to); });
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (!environment("LOCKSTEP_TEST_NO_THREADS").empty()) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return real<Create>("pthread_create")(thread, attributes, start, argument);
}

pid_t fork() {
  if (can_start_processes()) return real<pid_t (*)()>("fork")();
  errno = EAGAIN;
  return -1;
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const arguments[], char* const variables[]) {
  if (!can_start_processes()) return EAGAIN;
  using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[],
                        char* const[]);
  return real<Spawn>("posix_spawn")(pid, path, actions, attributes, arguments, variables);
}

int flock(int descriptor, int operation) {
  const auto is_below = [descriptor](const char* variable) {
    const std::string directory = environment(variable);
    return !directory.empty() && path_of(descriptor).compare(0, directory.size(), directory) == 0;
  };
  if (is_below("LOCKSTEP_TEST_NO_LOCKS")) {
    errno = ENOLCK;
    return -1;
  }
  if (is_below("LOCKSTEP_TEST_NFS_LOCKS") && (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return -1;
  }
  return real<int (*)(int, int)>("flock")(descriptor, operation);
}

int remove(const char* path) {
  return meet(decide("remove", path), [&] { return real<int (*)(const char*)>("remove")(path); });
}

int unlink(const char* path) {
  return meet(decide("unlink", path), [&] { return real<int (*)(const char*)>("unlink")(path); });
}

}  // extern "C"
