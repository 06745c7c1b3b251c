// See resolve.hpp.
#include "cluster/resolve.hpp"

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

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t most_threads = 64;  // name services are asked over a network: these wait, they do not work

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

/// What caller and threads share; it lives as long as the last of them.
struct Work {
  std::vector<std::pair<std::size_t, Address>> names;  ///< with their places in `results`

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
    const auto& [place, address] = work.names[work.next++];
    lock.unlock();
    Resolution result;
    try {
      result = look_up(address, false);
    } catch (const std::exception& error) {  // no memory: the caller's thread will notice as well
      result.problem = error.what();
    }
    lock.lock();
    if (!work.abandoned) work.results[place] = std::move(result);
    --work.open;
    work.changed.notify_one();
  }
}

/// Signals stay with the threads that were there before: they know what to do with them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before_) != 0) throw InternalError("pthread_sigmask failed");
  }
  ~BlockedSignals() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }  // cannot fail where the first did not
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

void start_threads(const std::shared_ptr<Work>& work) {
  const BlockedSignals blocked;  // threads are born with their parent's mask
  const std::size_t wanted = std::min(work->names.size(), most_threads);
  for (std::size_t started = 0; started < wanted; ++started) {
    try {
      std::thread([work]() { look_up_names(*work); }).detach();
    } catch (const std::system_error& error) {
      if (started > 0) return;  // those will do it all
      throw InternalError(std::string("cannot start a thread to look up host names: ") + error.what() +
                          "; allow this process more of them");
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
    result = {NameState::no_answer, {}, "the name service was silent"};
    work->names.emplace_back(i, addresses[i]);
  }
  if (work->names.empty()) return std::move(work->results);

  work->open = work->names.size();
  start_threads(work);
  std::unique_lock lock(work->mutex);
  while (work->open > 0 && !deadline.passed()) {
    // Bounded, since a clock's end of time would overflow.
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
