// See pmix_server.hpp. There are two threads: the main thread reads the control socket, and PMIx's thread calls this
// code with the requests of its clients. Answers to fences go through PMIx's callbacks, which pass them to its thread.
#include "cluster/pmix/pmix_server.hpp"

#include "cluster/net/frame.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/pmix/pmix_job_info.hpp"
#include "cluster/pmix/pmix_messages.hpp"
#include "cluster/pmix/pmix_port_guard.hpp"
#include "cluster/pmix/session_directories.hpp"
#include "cluster/pmix/trainer_environment.hpp"
#include "core/deadline.hpp"
#include "core/environment.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <pmix_server.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

namespace {

/// Memory that PMIx allocated with malloc() and that the caller must free.
template <typename Type>
using Owned = std::unique_ptr<Type, decltype(&std::free)>;

/// The launcher at the other end of the control socket.
class LauncherChannel {
 public:
  explicit LauncherChannel(int control) : socket_(control), reader_(max_pmix_message_bytes) {
    const int flags = fcntl(control, F_GETFL);
    if (flags < 0 || fcntl(control, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(control, F_SETFD, FD_CLOEXEC) != 0) {
      throw UsageError("lockstep pmix-server is internal; use lockstep launch");
    }
  }

  /// Sends a message; callable from either thread. If the launcher is gone, receive() notices.
  void send(PmixMessage kind, std::string body) {
    const std::string bytes = encode({static_cast<std::uint16_t>(kind), std::move(body)});
    const std::scoped_lock lock(sending_);
    (void)send_all(socket_, std::as_bytes(std::span(bytes)), Deadline::never());
  }

  /// Waits for the next message; nullopt at end of file.
  std::optional<Frame> receive() {
    while (true) {
      if (std::optional<Frame> frame = reader_.next()) return frame;
      std::array<std::byte, 4096> bytes{};
      (void)wait_for(socket_, POLLIN, Deadline::never());
      const Transfer transfer = receive_some(socket_, bytes);
      reader_.add(std::span(bytes).first(transfer.bytes));
      if (transfer.end == TransferEnd::closed && transfer.bytes == 0) return {};
    }
  }

 private:
  Socket socket_;
  FrameReader reader_;
  std::mutex sending_;
};

/// The callbacks of PMIx. They are plain functions without a context, so there is one instance per process.
class Reports {
 public:
  /// Call before PMIx starts. `launcher` must live until the process ends.
  static void begin(LauncherChannel& launcher, const PmixJob& job) {
    the() = std::unique_ptr<Reports>(new Reports(launcher, job));
  }

  [[nodiscard]] static pmix_server_module_t module() {
    pmix_server_module_t module{};
    module.client_connected = [](const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) -> pmix_status_t {
      if (--the()->missing_ranks_ == 0) close_own_ports();
      return PMIX_OPERATION_SUCCEEDED;
    };
    module.client_finalized = [](const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) -> pmix_status_t {
      return PMIX_OPERATION_SUCCEEDED;
    };
    module.abort = &Reports::on_abort;
    module.fence_nb = &Reports::on_fence;
    return module;
  }

  /// Completes a fence with the launcher's answer.
  static void answer_fence(const PmixFenceDone& done) { the()->answer(done); }

 private:
  struct Fence {
    pmix_modex_cbfunc_t answer = nullptr;
    void* callback_data = nullptr;
  };

  Reports(LauncherChannel& launcher, const PmixJob& job)
      : launcher_(launcher), nspace_(job.nspace), missing_ranks_(job.served.size()) {}

  static std::unique_ptr<Reports>& the() {
    static std::unique_ptr<Reports> reports;
    return reports;
  }

  static pmix_status_t on_abort(const pmix_proc_t* rank, void*, int status, const char* message, pmix_proc_t*,
                                std::size_t, pmix_op_cbfunc_t, void*) {
    const PmixAbort abort{static_cast<int>(rank->rank), status, message == nullptr ? "" : message};
    the()->launcher_.send(PmixMessage::abort, to_body(abort));
    return PMIX_OPERATION_SUCCEEDED;
  }

  static pmix_status_t on_fence(const pmix_proc_t* ranks, std::size_t count, const pmix_info_t*, std::size_t,
                                char* data, std::size_t bytes, pmix_modex_cbfunc_t answer, void* callback_data) {
    return the()->begin_fence(std::span(ranks, count), std::span(data, bytes), {answer, callback_data});
  }

  pmix_status_t begin_fence(std::span<const pmix_proc_t> ranks, std::span<char> data, const Fence& fence) {
    const Owned<char> owner(data.data(), &std::free);
    // Fences are identified by their sequence number, so all servers must see all of them: only fences of the whole
    // namespace are supported. MPI_Init and MPI_Finalize use no others; MPI_Comm_connect and sessions would.
    if (ranks.size() != 1 || ranks[0].rank != PMIX_RANK_WILDCARD || nspace_ != ranks[0].nspace) {
      return PMIX_ERR_NOT_SUPPORTED;
    }
    std::uint64_t sequence = 0;
    {
      const std::scoped_lock lock(mutex_);
      sequence = fences_++;
      open_.emplace(sequence, fence);
    }
    launcher_.send(PmixMessage::fence, to_body(PmixFence{sequence, std::string(data.data(), data.size())}));
    return PMIX_SUCCESS;
  }

  void answer(const PmixFenceDone& done) {
    Fence fence;
    {
      const std::scoped_lock lock(mutex_);
      const auto found = open_.find(done.sequence);
      if (found == open_.end()) {
        throw DataError(fmt::format("answer to fence {}, which is not pending", done.sequence));
      }
      fence = found->second;
      open_.erase(found);
    }
    if (!done.ok) {
      fence.answer(PMIX_ERROR, nullptr, 0, fence.callback_data, nullptr, nullptr);
      return;
    }
    auto data = std::make_unique<std::string>(done.data);
    const auto release = [](void* text) { delete static_cast<std::string*>(text); };
    const std::string& text = *data;
    fence.answer(PMIX_SUCCESS, text.data(), text.size(), fence.callback_data, release, data.release());
  }

  LauncherChannel& launcher_;
  std::string nspace_;
  std::size_t missing_ranks_;  ///< that have not connected yet; used by PMIx's thread only
  std::mutex mutex_;
  std::uint64_t fences_ = 0;
  std::map<std::uint64_t, Fence> open_;
};

/// Removes the PMIx variables of another launcher, which may have started this one.
void clear_foreign_variables() {
  for (const auto& [name, value] : current_environment()) {
    if (name.starts_with("PMIX_") && !name.starts_with("PMIX_MCA_")) (void)unsetenv(name.c_str());
  }
}

/// Sets the clients' variables that PMIx itself also reads: PMIx 4.2 crashes with neither HOME nor a passwd entry.
void apply(const Environment& for_mpi) {
  for (const char* name : {"HOME", "TMPDIR", "PMIX_MCA_gds"}) {
    const auto found = for_mpi.find(name);
    if (found == for_mpi.end()) continue;
    if (setenv(name, found->second.c_str(), 1) != 0) throw InternalError("setenv failed: out of memory");
  }
}

void start_pmix(const PmixJob& job) {
  accept_only_own_user();
  PmixInfo own;
  own.add(PMIX_SERVER_TMPDIR, job.session_directory);
  own.add(PMIX_SYSTEM_TMPDIR, job.session_directory);
  own.add(PMIX_HOSTNAME, node_name(own_node(job)));
  pmix_server_module_t module = Reports::module();
  check_pmix(PMIx_server_init(&module, own.data(), own.size()), "PMIx_server_init");
}

/// The variables that PMIx needs in the environment of a rank.
Environment environment_of_rank(const pmix_proc_t& rank) {
  char** variables = nullptr;
  check_pmix(PMIx_server_setup_fork(&rank, &variables), "PMIx_server_setup_fork");
  const Owned<char*> list(variables, &std::free);
  Environment environment;
  for (char** entry = variables; entry != nullptr && *entry != nullptr; ++entry) {
    const Owned<char> owner(*entry, &std::free);
    const std::string text = *entry;
    if (const std::size_t equals = text.find('='); equals != std::string::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

PmixReady register_job(const PmixJob& job, const Environment& for_mpi) {
  pmix_nspace_t nspace{};
  job.nspace.copy(nspace, PMIX_MAX_NSLEN);
  PmixInfo info;
  describe_job(job, info);
  const auto served = static_cast<int>(job.served.size());
  check_pmix(PMIx_server_register_nspace(nspace, served, info.data(), info.size(), nullptr, nullptr),
             "PMIx_server_register_nspace");
  PmixReady ready;
  for (const int number : job.served) {
    pmix_proc_t rank{};
    job.nspace.copy(rank.nspace, PMIX_MAX_NSLEN);
    rank.rank = static_cast<pmix_rank_t>(number);
    check_pmix(PMIx_server_register_client(&rank, getuid(), getgid(), nullptr, nullptr, nullptr),
               "PMIx_server_register_client");
    std::filesystem::create_directories(std::filesystem::path(job.session_directory) / std::to_string(number));
    Environment environment = environment_of_rank(rank);
    for (const auto& [name, value] : for_mpi) environment.insert_or_assign(name, value);
    ready.environments.push_back(std::move(environment));
  }
  return ready;
}

bool is(const Frame& frame, PmixMessage kind) { return frame.kind == static_cast<std::uint16_t>(kind); }

void serve(LauncherChannel& launcher, const PmixJob& job) {
  const Environment for_mpi =
      trainer_environment(job, HostResources::detect(), current_environment());  // before PMIx starts its thread
  clear_foreign_variables();
  apply(for_mpi);
  Reports::begin(launcher, job);
  start_pmix(job);
  launcher.send(PmixMessage::ready, to_body(register_job(job, for_mpi)));
  while (const std::optional<Frame> frame = launcher.receive()) {
    if (!is(*frame, PmixMessage::fence_done)) {
      throw DataError(fmt::format("unexpected message kind {}", frame->kind));
    }
    Reports::answer_fence(read_fence_done(frame->body));
  }
}

/// The server ends with its launcher and ignores signals of the terminal or container: ranks still save after such a
/// signal, and a rank that loses its server dies. SIGPIPE comes from clients that were just killed.
void ignore_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) (void)std::signal(number, SIG_IGN);
}

}  // namespace

void run_pmix_server(int control) {
  ignore_signals();
  int code = 0;
  std::array<std::string, 2> directories;
  std::unique_ptr<LauncherChannel> launcher;
  try {
    launcher = std::make_unique<LauncherChannel>(control);
    if (const std::optional<Frame> first = launcher->receive()) {
      if (!is(*first, PmixMessage::start)) throw DataError("the first message must be the job");
      const PmixJob job = read_job(first->body);
      directories[0] = job.session_directory;
      directories[1] = job.memory_directory;
      serve(*launcher, job);
    }
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    code = static_cast<int>(known == nullptr ? ExitCode::internal : known->code());
    if (launcher) launcher->send(PmixMessage::failed, error.what());
  }
  for (const std::string& directory : directories) remove_session_directory(directory);
  _exit(code);  // PMIx's thread runs until here
}

}  // namespace lockstep
