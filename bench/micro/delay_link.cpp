// Adds latency between two network namespaces, for kernels without netem. An NFQUEUE rule in each namespace holds
// packets in the kernel; this program releases them a fixed time after they arrived. It receives only their numbers and
// times, and one verdict releases all packets that are due, so that a full link costs little processor time
// (bench/network.py
// --check-links measures how much). Packets that arrive while the queue is full are lost, as on a network.
//
//     delay_link MICROSECONDS NAMESPACE NAMESPACE
//     ip netns exec NAMESPACE iptables -A INPUT -i DEVICE -j NFQUEUE
//
// It prints "ready" when the queues exist, and exits with the process that started it.
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using std::chrono::microseconds;

// Packets that are due within this time are released at once. In a virtual machine a process wakes about 20 µs late,
// and a receiver on a sleeping core another 20 µs. Network cards coalesce interrupts for about as long.
constexpr microseconds ahead(40);

constexpr std::uint32_t max_packets = 100'000;
constexpr int receive_buffer_bytes = 64 << 20;  // of the netlink socket; a packet's message takes about 500

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

class File {
 public:
  File(int descriptor, const std::string& what) : descriptor_(descriptor) {
    if (descriptor_ < 0) fail(what);
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

/// The time by the clock that timestamps packets.
microseconds now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + microseconds(time.tv_nsec / 1000);
}

void sleep_until(microseconds when) {
  const timespec time{when.count() / 1'000'000, when.count() % 1'000'000 * 1000};
  clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, nullptr);
}

/// A message to packet queue 0, the default of NFQUEUE rules.
class Message {
 public:
  explicit Message(int type, int flags = 0) {
    head_.nlmsg_type = static_cast<std::uint16_t>(NFNL_SUBSYS_QUEUE << 8 | type);
    head_.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    append(head_);
    append(nfgenmsg{AF_UNSPEC, NFNETLINK_V0, htons(0)});
  }

  template <class Value>
  Message& with(std::uint16_t type, const Value& value) {
    append(nlattr{static_cast<std::uint16_t>(NLA_HDRLEN + sizeof value), type});
    append(value);
    return *this;
  }

  void send_to(const File& socket) {
    head_.nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &head_, sizeof head_);
    if (send(socket.descriptor(), bytes_.data(), bytes_.size(), 0) < 0) fail("sending to a packet queue");
  }

 private:
  template <class Value>
  void append(const Value& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }

  nlmsghdr head_{};
  std::vector<std::byte> bytes_;
};

/// The first sizeof(Value) bytes as a Value, or nullopt if there are fewer.
template <class Value>
std::optional<Value> value_of(std::span<const std::byte> bytes) {
  Value value{};
  if (bytes.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::span<const std::byte> without(std::span<const std::byte> bytes, std::size_t first) {
  return bytes.subspan(std::min(bytes.size(), NLMSG_ALIGN(first)));
}

File open_socket(const std::string& network_namespace) {
  const File home(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), "this network namespace");
  const File place(open(("/run/netns/" + network_namespace).c_str(), O_RDONLY | O_CLOEXEC), network_namespace);
  if (setns(place.descriptor(), CLONE_NEWNET) != 0) fail("entering " + network_namespace);
  File made(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER), "a socket to netfilter");
  // Return to the original namespace: the benchmark kills all processes in a host's namespace.
  if (setns(home.descriptor(), CLONE_NEWNET) != 0) fail("leaving " + network_namespace);
  return made;
}

/// The packets that arrive in one of the namespaces, first in, first out.
class Queue {
 public:
  Queue(const std::string& network_namespace, microseconds latency)
      : socket_(open_socket(network_namespace)), latency_(latency) {
    set(SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer_bytes, "SO_RCVBUFFORCE");
    set(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1, "NETLINK_NO_ENOBUFS");
    set(SOL_SOCKET, SO_TIMESTAMP, 1, "SO_TIMESTAMP");  // makes the kernel timestamp all packets
    Message(NFQNL_MSG_CONFIG, NLM_F_ACK)
        .with(NFQA_CFG_CMD, nfqnl_msg_config_cmd{NFQNL_CFG_CMD_BIND, 0, htons(AF_INET)})
        .with(NFQA_CFG_PARAMS, nfqnl_msg_config_params{0, NFQNL_COPY_META})
        .with(NFQA_CFG_QUEUE_MAXLEN, htonl(max_packets))
        .with(NFQA_CFG_FLAGS, htonl(NFQA_CFG_F_GSO))  // packets of 64 kB stay whole
        .with(NFQA_CFG_MASK, htonl(NFQA_CFG_F_GSO))
        .send_to(socket_);
    const auto answer = value_of<nlmsgerr>(without(receive(0), NLMSG_HDRLEN));
    if (!answer || answer->error != 0) {
      errno = answer ? -answer->error : EPROTO;
      fail("making a packet queue in " + network_namespace);
    }
  }

  [[nodiscard]] pollfd interest() const { return {socket_.descriptor(), POLLIN, 0}; }
  [[nodiscard]] microseconds next_due() const { return held_.empty() ? microseconds::max() : held_.front().due; }

  void take_in() {
    for (auto message = receive(MSG_DONTWAIT); !message.empty(); message = receive(MSG_DONTWAIT)) read(message);
  }

  void let_go() {
    // Also releases packets that are due soon, at most a sixteenth of the latency early, to save wakeups.
    const auto due = [until = now() + std::max(ahead, latency_ / 16)](const Packet& packet) {
      return packet.due <= until;
    };
    const auto end = std::find_if_not(held_.begin(), held_.end(), due);
    if (end == held_.begin()) return;
    Message(NFQNL_MSG_VERDICT_BATCH)  // on this and all that came before it
        .with(NFQA_VERDICT_HDR, nfqnl_msg_verdict_hdr{htonl(NF_ACCEPT), std::prev(end)->number})
        .send_to(socket_);
    held_.erase(held_.begin(), end);
  }

 private:
  struct Packet {
    microseconds due;
    std::uint32_t number;  // in network byte order
  };

  void set(int level, int option, int value, const char* name) {
    if (setsockopt(socket_.descriptor(), level, option, &value, sizeof value) != 0) fail(name);
  }

  /// Returns an empty span if no message is available.
  std::span<const std::byte> receive(int flags) {
    const ssize_t size = recv(socket_.descriptor(), message_.data(), message_.size(), flags);
    if (size < 0 && errno != EAGAIN && errno != EINTR) fail("reading from a packet queue");
    return std::span(message_).first(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  }

  void read(std::span<const std::byte> message) {
    const auto head = value_of<nlmsghdr>(message);
    if (!head || head->nlmsg_type != (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET)) return;
    Packet packet{now() + latency_, 0};
    auto rest = without(message, NLMSG_HDRLEN + sizeof(nfgenmsg));
    for (auto attribute = value_of<nlattr>(rest); attribute; attribute = value_of<nlattr>(rest)) {
      const auto value = without(rest, NLA_HDRLEN);
      if (attribute->nla_type == NFQA_PACKET_HDR) {
        if (const auto named = value_of<nfqnl_msg_packet_hdr>(value)) packet.number = named->packet_id;
      } else if (attribute->nla_type == NFQA_TIMESTAMP) {
        if (const auto came = value_of<nfqnl_msg_packet_timestamp>(value)) {
          packet.due = std::chrono::seconds(be64toh(came->sec)) + microseconds(be64toh(came->usec)) + latency_;
        }
      }
      rest = without(rest, std::max<std::size_t>(attribute->nla_len, NLA_HDRLEN));
    }
    held_.push_back(packet);
  }

  File socket_;
  microseconds latency_;
  std::deque<Packet> held_;
  std::array<std::byte, 1024> message_{};
};

[[noreturn]] void run(Queue& first, Queue& second) {
  for (;;) {
    // A packet that arrives while others are held is due after them and carries its timestamp, so no wakeup is needed.
    const microseconds due = std::min(first.next_due(), second.next_due());
    if (due != microseconds::max()) {
      sleep_until(due - ahead);
    } else {
      std::array<pollfd, 2> queues{first.interest(), second.interest()};
      if (poll(queues.data(), queues.size(), -1) < 0 && errno != EINTR) fail("poll");
    }
    for (Queue* queue : {&first, &second}) {
      queue->let_go();
      queue->take_in();
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
  if (argc != 4) throw std::invalid_argument("delay_link MICROSECONDS NAMESPACE NAMESPACE");
  const microseconds latency(microseconds_of(argv[1]));
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_TIMERSLACK, 1) != 0) fail("prctl");
  Queue first(argv[2], latency);
  Queue second(argv[3], latency);
  std::puts("ready");
  std::fflush(stdout);
  run(first, second);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 64;
}
