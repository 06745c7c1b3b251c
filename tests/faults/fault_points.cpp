// The program lockstep_with_faults: `lockstep`, whose fault points act and whose history is recorded.
//   LOCKSTEP_TEST_FAULT_POINT="NAME COUNT ACTION MARKER"   acts when the point is reached for the COUNTth time by a
//       process, and only once: the file MARKER, made then, says that it has happened. ACTION:
//         kill   the process kills itself (SIGKILL)
//         stop   the process stops itself (SIGSTOP)
//         hold   the thread waits for the file MARKER.released: the test does to it, or around it, what it likes
//         flip   inverts one bit of a number of the memory at hand that is not 0: what is 0 may be padding
//         nan    writes NaN into it
//   LOCKSTEP_TEST_RANK=N            only in the trainer of this rank
//   LOCKSTEP_TEST_GENERATION=N      only in this generation
//   LOCKSTEP_TEST_KILL_READER=FILE  a process that reads a backup kills itself, if it can rename FILE to FILE.done
//   LOCKSTEP_TEST_STEP_MS=N         each step takes N milliseconds longer
//   LOCKSTEP_TEST_HISTORY=FILE      appends a line of JSON per event
#include "core/fault_point.hpp"

#include "core/environment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

struct Order {
  std::string point;
  int count = 0;
  std::string action;
  std::string marker;
};

Order read_order() {
  const Environment environment = current_environment();
  const std::string rank = value_of(environment, "LOCKSTEP_TEST_RANK");
  if (!rank.empty() && rank != std::to_string(launcher_rank(environment))) return {};
  const std::string generation = value_of(environment, "LOCKSTEP_TEST_GENERATION");
  if (!generation.empty() && generation != value_of(environment, "LOCKSTEP_GENERATION")) return {};
  Order order;
  std::istringstream(value_of(environment, "LOCKSTEP_TEST_FAULT_POINT")) >> order.point >> order.count >>
      order.action >> order.marker;
  return order;
}

/// Whether this process is the one that made the marker.
bool mark(const std::string& marker) {
  const int file = open(marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) (void)close(file);
  return file >= 0;
}

/// Of the numbers from the middle on, then of those before it, the first that is not 0.
void flip_bit(std::span<std::byte> memory) {
  constexpr std::array<std::byte, 4> zero{};
  const std::size_t numbers = memory.size() / zero.size();
  for (std::size_t i = 0; i < numbers; ++i) {
    const std::span<std::byte> number = memory.subspan((numbers / 2 + i) % numbers * zero.size(), zero.size());
    if (std::ranges::equal(number, zero)) continue;
    number[2] ^= std::byte{1};
    return;
  }
}

void act(const Order& order, std::span<std::byte> memory) {
  if (order.action == "kill") (void)raise(SIGKILL);
  if (order.action == "stop") (void)raise(SIGSTOP);
  if (order.action == "flip") flip_bit(memory);
  if (order.action == "nan" && !memory.empty()) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(memory.data() + memory.size() / 2 / sizeof nan * sizeof nan, &nan, sizeof nan);
  }
  constexpr useconds_t interval = 2000;
  const std::string released = order.marker + ".released";
  while (order.action == "hold" && access(released.c_str(), F_OK) != 0) (void)usleep(interval);
}

/// CRC-32, as Python's zlib has it. By system calls, whose C functions a test may let fail for the program's own files.
std::uint64_t digest_of_file(std::string_view path) {
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, std::string(path).c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (file < 0) return 0;
  uLong digest = crc32(0, nullptr, 0);
  std::array<Bytef, 65536> bytes{};
  for (long count = 1; count > 0;) {
    count = syscall(SYS_read, file, bytes.data(), bytes.size());
    if (count > 0) digest = crc32(digest, bytes.data(), static_cast<uInt>(count));
  }
  (void)syscall(SYS_close, file);
  return digest;
}

void pause_step() {
  static const int milliseconds = std::atoi(value_of(current_environment(), "LOCKSTEP_TEST_STEP_MS").c_str());
  constexpr int microseconds = 1000;
  if (milliseconds > 0) (void)usleep(static_cast<useconds_t>(milliseconds * microseconds));
}

void kill_reader() {
  const std::string order = value_of(current_environment(), "LOCKSTEP_TEST_KILL_READER");
  if (!order.empty() && rename(order.c_str(), (order + ".done").c_str()) == 0) (void)raise(SIGKILL);
}

}  // namespace

void fault_point(std::string_view name, std::span<std::byte> memory) {
  if (name == "step") pause_step();
  if (name == "read") kill_reader();
  static const Order order = read_order();
  static std::atomic<int> reached{0};
  if (name != order.point || ++reached != order.count || !mark(order.marker)) return;
  act(order, memory);
}

void record_event(const HistoryEvent& event) {
  static const std::string path = value_of(current_environment(), "LOCKSTEP_TEST_HISTORY");
  static const std::string generation = value_of(current_environment(), "PMIX_NAMESPACE");
  static const int rank = launcher_rank(current_environment());
  if (path.empty()) return;
  // Stays open: a test may take the right to open files away.
  static const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  const std::string line = fmt::format(
      "{{\"t\": {}.{:09}, \"pid\": {}, \"rank\": {}, \"generation\": \"{}\", \"what\": \"{}\", \"step\": {}, "
      "\"digest\": \"{:x}\", \"file\": \"{}\", \"trainer\": {}}}\n",
      now.tv_sec, now.tv_nsec, getpid(), rank, event.generation.empty() ? generation : event.generation, event.what,
      event.step, event.file.empty() ? event.digest : digest_of_file(event.file), event.file, event.trainer);
  (void)!write(file, line.data(), line.size());
}

}  // namespace lockstep
