// A cable of a given length between two network namespaces, for kernels without netem: a TUN device in each, and every
// packet that one of them is given comes out of the other so many microseconds later. Packets are the kernel's own, up
// to 64 kB (checksums and segments are left to it, as a network card would have them), so that the cable costs little:
// bench/network.py --check-links tells how much. What finds the cable full waits in the device's queue, and is lost
// there if it must be, as on a network.
//
//     delay_link DEVICE MICROSECONDS NAMESPACE NAMESPACE
//
// It says "ready" when the devices are there, without addresses yet, and ends with the process that started it.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace {

using Clock = std::chrono::steady_clock;

// A process is woken some 20 µs late, for a packet's arrival and again when it is due (in a virtual machine; without
// such a correction pings over 0.2 and 2 ms took 0.1 ms too long).
constexpr std::chrono::microseconds waking(40);

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC)) {
    if (descriptor_ < 0) fail(path);
  }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

File make_device(const std::string& name, const std::string& network_namespace) {
  const File home("/proc/self/ns/net", O_RDONLY);
  const File place("/run/netns/" + network_namespace, O_RDONLY);
  if (setns(place.descriptor(), CLONE_NEWNET) != 0) fail("entering " + network_namespace);
  File device("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request{};
  if (name.size() >= sizeof request.ifr_name) throw std::invalid_argument("a device's name is too long: " + name);
  std::copy(name.begin(), name.end(), static_cast<char*>(request.ifr_name));
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(device.descriptor(), TUNSETIFF, &request) != 0) fail("making the device " + name);
  // The other end can take packets of 64 kB whose checksums nobody has computed: it is this kernel, too.
  if (ioctl(device.descriptor(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) fail("TUNSETOFFLOAD");
  // Who ends all processes of a host is not to end its cable.
  if (setns(home.descriptor(), CLONE_NEWNET) != 0) fail("leaving " + network_namespace);
  return device;
}

/// One direction: packets on their way, first in, first out.
class Cable {
 public:
  Cable(int from, int to, Clock::duration latency) : from_(from), to_(to), latency_(latency) {}

  [[nodiscard]] pollfd interest() const { return {from_, static_cast<short>(full() ? 0 : POLLIN), 0}; }
  [[nodiscard]] Clock::time_point next_due() const { return empty() ? Clock::time_point::max() : slot(head_).due; }

  void take_in() {
    for (int i = 0; i < at_a_time && !full(); ++i) {
      Packet& packet = slot(tail_);
      const ssize_t size = read(from_, packet.bytes.data(), packet.bytes.size());
      if (size <= 0) return;  // no more for now, or the device is down
      packet.size = static_cast<std::size_t>(size);
      packet.due = Clock::now() + latency_ - waking;
      ++tail_;
    }
  }

  void hand_out() {
    for (; next_due() <= Clock::now(); ++head_) {
      const Packet& packet = slot(head_);
      // A packet that the receiver does not take is lost, as it would be behind a real cable.
      if (write(to_, packet.bytes.data(), packet.size) < 0 && errno == EBADF) fail("writing to a device");
    }
    if (empty()) head_ = tail_ = 0;  // the same few slots again, which caches still hold
  }

 private:
  static constexpr std::size_t header = 10;  // of linux/virtio_net.h, which C++ cannot read: passed on as it comes
  struct Packet {  // NOLINT(cppcoreguidelines-pro-type-member-init): not touched before it is filled
    Clock::time_point due;
    std::size_t size;
    std::array<std::byte, header + 65536> bytes;
  };
  static constexpr std::size_t capacity = 4096;  // pages that are never touched take no memory
  static constexpr int at_a_time = 16;           // then it is the other direction's turn

  [[nodiscard]] bool empty() const { return head_ == tail_; }
  [[nodiscard]] bool full() const { return tail_ - head_ == capacity; }
  [[nodiscard]] Packet& slot(std::size_t number) const { return packets_[number % capacity]; }

  int from_;
  int to_;
  Clock::duration latency_;
  std::unique_ptr<Packet[]> packets_ = std::make_unique_for_overwrite<Packet[]>(capacity);  // NOLINT
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

[[noreturn]] void run(Cable& there, Cable& back) {
  for (;;) {
    std::array<pollfd, 2> devices{there.interest(), back.interest()};
    const Clock::duration left = std::min(there.next_due(), back.next_due()) - Clock::now();
    const auto wait = std::clamp<std::int64_t>(std::chrono::nanoseconds(left).count(), 0, 999'999'999);
    const timespec timeout{0, wait};
    if (ppoll(devices.data(), devices.size(), &timeout, nullptr) < 0 && errno != EINTR) fail("ppoll");
    for (Cable* cable : {&there, &back}) {
      cable->take_in();
      cable->hand_out();
    }
  }
}

int microseconds_of(const std::string& word) {
  int value = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 0 || value > 1'000'000) {
    throw std::invalid_argument("a latency is 0 to 1000000 microseconds, not '" + word + "'");
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::invalid_argument("delay_link DEVICE MICROSECONDS NAMESPACE NAMESPACE");
  const std::chrono::microseconds latency(microseconds_of(argv[2]));
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_TIMERSLACK, 1) != 0) fail("prctl");
  const File first = make_device(argv[1], argv[3]);
  const File second = make_device(argv[1], argv[4]);
  Cable there(first.descriptor(), second.descriptor(), latency);
  Cable back(second.descriptor(), first.descriptor(), latency);
  std::puts("ready");
  std::fflush(stdout);
  run(there, back);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 64;
}
