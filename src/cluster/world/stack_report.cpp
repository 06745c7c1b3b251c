// See stack_report.hpp. The handler calls only what is safe in one: no allocation, no lock, one write() a line.
#include "cluster/world/stack_report.hpp"

#include "core/environment.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::size_t max_frames = 48;
constexpr int own_frames = 2;  // the handler and the kernel's trampoline
constexpr int hexadecimal = 16;

/// A line of bounded length.
class Line {
 public:
  Line& add(std::string_view text) noexcept {
    const std::size_t bytes = std::min(text.size(), text_.size() - size_ - 1);
    std::memcpy(text_.data() + size_, text.data(), bytes);
    size_ += bytes;
    return *this;
  }
  Line& add(std::uint64_t number, int base) noexcept {
    std::array<char, 20> digits{};
    const auto* const end = std::to_chars(digits.begin(), digits.end(), number, base).ptr;
    return add({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  void write() noexcept {
    text_.at(size_++) = '\n';
    (void)!::write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  std::array<char, 256> text_{};
  std::size_t size_ = 0;
};

/// The rank, known before a handler can run.
std::uint64_t own_rank() {
  static const auto rank = static_cast<std::uint64_t>(launcher_rank(current_environment()));
  return rank;
}

std::string_view file_name(const char* path) {
  const std::string_view whole(path == nullptr ? "?" : path);
  return whole.substr(whole.rfind('/') + 1);
}

void print_stack(int /*signal*/) {
  const int error = errno;
  std::array<void*, max_frames> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  Line().add("[rank ").add(own_rank(), 10).add("] stack of the main thread:").write();
  for (int i = own_frames; i < count; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(frames.at(static_cast<std::size_t>(i)));
    Dl_info info{};
    Line line;
    line.add("[rank ").add(own_rank(), 10).add("]   ");
    if (dladdr(frames.at(static_cast<std::size_t>(i)), &info) == 0) {
      line.add("0x").add(address, hexadecimal);
    } else {
      line.add(file_name(info.dli_fname)).add("+0x");
      line.add(address - reinterpret_cast<std::uintptr_t>(info.dli_fbase), hexadecimal);
      if (info.dli_sname != nullptr) line.add(" ").add(info.dli_sname);
    }
    line.write();
  }
  errno = error;
}

}  // namespace

void print_stack_on_request() {
  (void)own_rank();
  std::array<void*, 1> frame{};
  (void)backtrace(frame.data(), 1);  // loads libgcc, which a handler must not
  struct sigaction action {};
  action.sa_handler = &print_stack;
  action.sa_flags = SA_RESTART;
  (void)sigaction(SIGQUIT, &action, nullptr);
}

}  // namespace lockstep
