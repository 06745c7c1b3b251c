// See resolve.hpp.
#include "cluster/net/resolve.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_threads = 64;  // they wait for the network and use no CPU

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Resolution look_up(const Address& address, bool numbers_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numbers_only ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  const AddressList list(status == 0 ? found : nullptr, &freeaddrinfo);
  Resolution result;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    Endpoint endpoint;
    if (entry->ai_addrlen > sizeof endpoint.storage) continue;
    std::memcpy(&endpoint.storage, entry->ai_addr, entry->ai_addrlen);
    endpoint.length = entry->ai_addrlen;
    result.endpoints.push_back(endpoint);
  }
  if (!result.endpoints.empty()) {
    result.state = NameState::found;
  } else {
    const bool unknown = status == 0 || status == EAI_NONAME || status == EAI_NODATA || status == EAI_ADDRFAMILY;
    result.state = unknown ? NameState::unknown : NameState::no_answer;
    result.problem = status == 0 ? "no address" : gai_strerror(status);
  }
  return result;
}

/// Shared between the caller and its threads; the last of them frees it.
struct Work {
  std::vector<std::pair<std::size_t, Address>> names;  ///< with their indices in `results`

  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  std::vector<Resolution> results;
  std::size_t next = 0;
  std::size_t open = 0;  ///< names without a result
  bool abandoned = false;
};

void look_up_names(Work& work) {
  std::unique_lock lock(work.mutex);
  while (!work.abandoned && work.next < work.names.size()) {
    const auto& [index, address] = work.names[work.next++];
    lock.unlock();
    Resolution result;
    try {
      result = look_up(address, false);
    } catch (const std::exception& error) {  // out of memory
      result.problem = error.what();
    }
    lock.lock();
    if (!work.abandoned) work.results[index] = std::move(result);
    --work.open;
    work.changed.notify_one();
  }
}

/// Blocks all signals in new threads, so that existing threads keep receiving them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before_) != 0) throw InternalError("pthread_sigmask failed");
  }
  ~BlockedSignals() {
    (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }  // cannot fail after the first call succeeded
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

void start_threads(const std::shared_ptr<Work>& work) {
  const BlockedSignals blocked;  // threads inherit the signal mask
  const std::size_t num_threads = std::min(work->names.size(), max_threads);
  for (std::size_t started = 0; started < num_threads; ++started) {
    try {
      std::thread([work]() { look_up_names(*work); }).detach();
    } catch (const std::system_error& error) {
      if (started > 0) return;  // the threads that started do all the work
      throw InternalError(fmt::format(
          "cannot start a thread to resolve host names: {}; raise the thread limit (ulimit -u)", error.what()));
    }
  }
}

}  // namespace

std::vector<Resolution> resolve(std::span<const Address> addresses, Deadline deadline) {
  const auto work = std::make_shared<Work>();
  work->results.resize(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    Resolution& result = work->results[i];
    result = look_up(addresses[i], true);
    if (result.state == NameState::found) continue;
    result = {NameState::no_answer, {}, "the name service did not answer"};
    work->names.emplace_back(i, addresses[i]);
  }
  if (work->names.empty()) return std::move(work->results);

  work->open = work->names.size();
  start_threads(work);
  std::unique_lock lock(work->mutex);
  while (work->open > 0 && !deadline.passed()) {
    // An infinite wait would overflow the clock.
    const std::chrono::duration<double> left(std::min(deadline.seconds_left(), 3600.0));
    work->changed.wait_for(lock, left);
  }
  work->abandoned = true;
  return std::move(work->results);
}

Resolution resolve(const Address& address, Deadline deadline) {
  return std::move(resolve(std::span(&address, 1), deadline).front());
}

}  // namespace lockstep
