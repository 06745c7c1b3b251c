// See process_group.hpp. One file, because all operations act on one rank's state and agree by one header.
#include "collective/process_group.hpp"

#include "cluster/world/launcher_connection.hpp"
#include "cluster/world/world.hpp"
#include "collective/communicator.hpp"
#include "collective/make_communicator.hpp"
#include "core/digest.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

enum class Operation : std::size_t {
  reduce,
  join,
  make_reducer,
  all_reduce,
  broadcast,
  all_gather,
  barrier,
  close,
  failed
};
constexpr std::size_t operations = 9;

/// The header, summed over the ranks. `detail` is the reducer's number or a digest of what must be equal. Ranks agree
/// on it if and only if n * (sum of squares) = (sum)^2; below 2^20, both sides are exact for 64 ranks and more.
struct Header {
  std::array<double, operations> ranks_in;  ///< by operation
  double detail;
  double detail_squared;
  double weight;
  double contributing;
  double stop_after_backup;  ///< ranks with this request
  double stop_after_step;

  [[nodiscard]] double in(Operation operation) const { return ranks_in.at(static_cast<std::size_t>(operation)); }
};
constexpr std::size_t header_values = sizeof(Header) / sizeof(double);
constexpr std::uint64_t max_detail = 1U << 20U;

constexpr double fail_limit_s = 1;

/// Buckets through which arrays of any size are summed.
constexpr std::array<std::size_t, 3> staging_sizes{1U << 10U, 1U << 14U, 1U << 18U};

struct NumberedReducer {
  GradientReducer reducer;
  std::size_t sparse;
  StepAgreement agreement = {};
};

}  // namespace

struct ProcessGroup::Rank {
  explicit Rank(double timeout_s) : timeout(timeout_s) {
    launcher.progress().report_busy();  // the world stands
    options.timeout = timeout;
    options.while_waiting = [this](bool waiting) { launcher.progress().report_waiting(waiting); };
    launcher.progress().expect_irregular_steps();
    control = make_communicator(world, options);
  }

  Header agree(Operation operation, std::uint64_t detail, double weight, bool contributes, const std::string& what);
  [[noreturn]] void disagree(const Header& header, Operation operation, const std::string& what) const;

  void begin_step(std::size_t number, double weight);
  static void start_all(GradientReducer& reducer);
  void complete(GradientReducer& reducer, double weight);
  JoinResult join();
  void sum_chunk(std::span<float> values);
  [[nodiscard]] std::vector<std::string> gather(std::string bytes) const;

  double timeout;
  LauncherConnection launcher;  ///< before `world`, whose start it reports
  World world;
  CommunicatorOptions options;
  std::unique_ptr<Communicator> control;  ///< for everything but gradients
  std::vector<std::unique_ptr<NumberedReducer>> reducers;
  std::unique_ptr<GradientReducer> staging;
  std::uint64_t contributed = 0;  ///< steps since the last join
  StopRequest request = StopRequest::none;
  double allreduce_seconds = 0;
  double wait_seconds = 0;
};

struct ProcessGroup::Step {
  GradientReducer* reducer = nullptr;
  std::vector<bool> has = {};               ///< by gradient
  std::vector<std::size_t> missing = {};    ///< by bucket: its gradients that have not arrived
  std::vector<std::size_t> in_bucket = {};  ///< by bucket: its gradients
  std::size_t next_bucket = 0;              ///< the first that has not started

  void reset() {
    std::fill(has.begin(), has.end(), false);
    missing = in_bucket;
    next_bucket = 0;
  }
};

Header ProcessGroup::Rank::agree(Operation operation, std::uint64_t detail, double weight, bool contributes,
                                 const std::string& what) {
  Header header{};
  header.ranks_in.at(static_cast<std::size_t>(operation)) = 1;
  header.detail = static_cast<double>(detail);
  header.detail_squared = header.detail * header.detail;
  header.weight = weight;
  header.contributing = contributes ? 1 : 0;
  header.stop_after_backup = launcher.request() == StopRequest::after_next_backup ? 1 : 0;
  header.stop_after_step = launcher.request() == StopRequest::after_this_step ? 1 : 0;
  static_assert(sizeof(Header) == header_values * sizeof(double));
  control->all_reduce_sum({reinterpret_cast<double*>(&header), header_values});

  const double ranks = world.size();
  const bool may_join = operation == Operation::reduce || operation == Operation::join;
  const double together = may_join ? header.in(Operation::reduce) + header.in(Operation::join) : header.in(operation);
  const double with_detail = ranks - header.in(Operation::join);
  const bool same_detail = with_detail * header.detail_squared == header.detail * header.detail;
  if (together != ranks || !same_detail || header.in(Operation::failed) > 0) disagree(header, operation, what);
  if (header.stop_after_backup > 0) request = StopRequest::after_next_backup;
  if (header.stop_after_step > 0) request = StopRequest::after_this_step;
  return header;
}

void ProcessGroup::Rank::disagree(const Header& header, Operation operation, const std::string& what) const {
  const std::vector<std::string> texts =
      control->all_gather((operation == Operation::failed ? "!" : "") + what.substr(0, 2000));
  if (header.in(Operation::failed) > 0) {
    const auto failed = std::ranges::find_if(texts, [](const std::string& text) { return text.starts_with('!'); });
    throw PeerError(fmt::format("rank {} failed: {}", failed - texts.begin(), failed->substr(1)));
  }
  const auto other = std::ranges::find_if(texts, [&](const std::string& text) { return text != texts[0]; });
  throw UsageError(fmt::format(
      "the ranks do not make the same calls: rank 0 {}, rank {} {}; make every rank call the same functions "
      "of lockstep in the same order, and after data of uneven length call join or use lockstep's callbacks",
      texts[0], other - texts.begin(), other == texts.end() ? "does too" : *other));
}

void ProcessGroup::Rank::begin_step(std::size_t number, double weight) {
  launcher.progress().report_step_begin();
  const Header header = agree(Operation::reduce, number, weight, weight > 0,
                              fmt::format("reduces the gradients of optimizer {}", number));
  reducers.at(number)->agreement = {header.weight, static_cast<int>(header.contributing)};
  if (weight > 0) ++contributed;
}

void ProcessGroup::Rank::start_all(GradientReducer& reducer) {
  for (std::size_t bucket = 0; bucket < reducer.buckets(); ++bucket) reducer.start(bucket);
}

void ProcessGroup::Rank::complete(GradientReducer& reducer, double weight) {
  const auto scale = static_cast<float>(weight > 0 ? 1 / weight : 0);
  for (std::size_t bucket = 0; bucket < reducer.buckets(); ++bucket) reducer.average(bucket, scale);
  for (std::size_t bucket = 0; bucket < reducer.buckets(); ++bucket) reducer.finish(bucket);
  const CommunicationTimes times = reducer.take_times();
  wait_seconds += times.shared_memory_wait + times.mpi_wait;
}

JoinResult ProcessGroup::Rank::join() {
  launcher.progress().report_busy();
  while (true) {
    const Header header = agree(Operation::join, 0, 0, false, "has joined, because its data has ended");
    const double reducing = header.in(Operation::reduce);
    if (reducing == 0) break;
    NumberedReducer& numbered = *reducers.at(static_cast<std::size_t>(header.detail / reducing));
    GradientReducer& reducer = numbered.reducer;
    for (std::size_t bucket = 0; bucket < reducer.buckets(); ++bucket) reducer.clear(bucket);
    start_all(reducer);
    complete(reducer, header.weight);
    for (std::size_t i = 0; i < numbered.sparse; ++i) (void)gather({});
  }
  std::vector<double> steps(static_cast<std::size_t>(world.size()));
  steps[static_cast<std::size_t>(world.rank())] = static_cast<double>(std::exchange(contributed, 0));
  control->all_reduce_sum(steps);
  const auto most = std::ranges::max_element(steps);
  return {static_cast<std::uint64_t>(*most), static_cast<int>(most - steps.begin()),
          std::ranges::any_of(steps, [&](double each) { return each < *most; })};
}

/// Sums at most the largest staging size.
void ProcessGroup::Rank::sum_chunk(std::span<float> values) {
  if (!staging) {
    staging = std::make_unique<GradientReducer>(
        make_communicator(world, options), std::vector<std::size_t>(staging_sizes.begin(), staging_sizes.end()), 1);
  }
  std::size_t index = 0;
  while (staging_sizes.at(index) < values.size()) ++index;
  const std::size_t bucket = staging->bucket_of(index);
  std::ranges::copy(values, staging->gradient(index).begin());
  staging->start(bucket);
  staging->average(bucket, 1);
  staging->finish(bucket);
  std::ranges::copy(staging->average_of(index).first(values.size()), values.begin());
}

std::vector<std::string> ProcessGroup::Rank::gather(std::string bytes) const {
  std::vector<std::string> all(static_cast<std::size_t>(world.size()));
  std::vector<double> sizes(all.size());
  const auto own = static_cast<std::size_t>(world.rank());
  sizes[own] = static_cast<double>(bytes.size());
  control->all_reduce_sum(sizes);
  all[own] = std::move(bytes);
  for (std::size_t root = 0; root < all.size(); ++root) {
    all[root].resize(static_cast<std::size_t>(sizes[root]));
    if (!all[root].empty()) control->broadcast(std::as_writable_bytes(std::span(all[root])), static_cast<int>(root));
  }
  return all;
}

ProcessGroup::ProcessGroup(const ProcessGroupOptions& options) : thread_(options.while_caller_waits) {
  thread_.run([this, timeout = options.timeout] {
    state_ = std::make_shared<Rank>(timeout);
    rank_ = state_->world.rank();
    host_of_rank_ = state_->world.host_of_rank();
    description_ = state_->control->describe();
  });
}

ProcessGroup::~ProcessGroup() {
  // Freeing communicators is collective, so what close() did not free stays until the process ends.
  if (state_)
    (void)new (std::nothrow) std::shared_ptr<Rank>(state_);  // NOLINT(cppcoreguidelines-owning-memory): see above
}

std::size_t ProcessGroup::make_reducer(const std::vector<std::size_t>& sizes, std::size_t bucket_elements,
                                       GradientCompression compression, std::size_t sparse) {
  auto made = std::make_shared<GradientReducer*>(nullptr);
  thread_.run([sizes, bucket_elements, compression, sparse, made, rank = state_] {
    std::uint64_t digest = fnv1a(fnv1a(fnv1a_basis, bucket_elements), static_cast<std::uint64_t>(compression));
    digest = fnv1a(digest, std::uint64_t{sparse});
    for (const std::size_t size : sizes) digest = fnv1a(digest, size);
    (void)rank->agree(
        Operation::make_reducer, digest % max_detail, 0, false,
        fmt::format("builds an optimizer of {} gradients (digest {} of their sizes)", sizes.size(), to_hex(digest)));
    CommunicatorOptions options = rank->options;
    options.compression = compression;
    rank->reducers.push_back(std::make_unique<NumberedReducer>(
        NumberedReducer{GradientReducer(make_communicator(rank->world, options), sizes, bucket_elements), sparse}));
    *made = &rank->reducers.back()->reducer;
  });
  auto step = std::make_unique<Step>();
  step->reducer = *made;
  step->has.resize(sizes.size());
  step->in_bucket.resize(step->reducer->buckets());
  for (std::size_t i = 0; i < sizes.size(); ++i) ++step->in_bucket[step->reducer->bucket_of(i)];
  step->reset();
  steps_.push_back(std::move(step));
  return steps_.size() - 1;
}

ProcessGroup::Step& ProcessGroup::step_of(std::size_t reducer) const {
  if (reducer < steps_.size()) return *steps_[reducer];
  throw InternalError(fmt::format("there is no reducer {}", reducer));
}

StepAgreement ProcessGroup::reduce(std::size_t reducer, std::span<const float* const> gradients,
                                   std::span<float* const> averages, double weight) {
  const Step& step = step_of(reducer);
  if (gradients.size() != step.has.size()) {
    throw InternalError(fmt::format("{} gradients instead of {}", gradients.size(), step.has.size()));
  }
  // The last gradient comes first, as in backward, so that its bucket starts first.
  for (std::size_t i = gradients.size(); i-- > 0;) {
    if (!step.has[i]) contribute(reducer, i, gradients[i], weight);
  }
  return finish(reducer, averages);
}

void ProcessGroup::contribute(std::size_t reducer, std::size_t gradient, const float* values, double weight) {
  Step& step = step_of(reducer);
  if (step.has.at(gradient)) {
    throw UsageError(
        fmt::format("gradient {} was computed twice before the optimizer applied it; do not overlap the "
                    "reduction of this optimizer (overlap=False)",
                    gradient));
  }
  const std::span<float> arena = step.reducer->gradient(gradient);
  if (weight == 0) {
    std::ranges::fill(arena, 0.0F);
  } else {
    const auto factor = static_cast<float>(weight);
    for (std::size_t i = 0; i < arena.size(); ++i) arena[i] = values[i] * factor;
  }
  const bool is_first = std::ranges::none_of(step.has, [](bool has) { return has; });
  step.has[gradient] = true;
  --step.missing[step.reducer->bucket_of(gradient)];
  if (is_first) thread_.post([rank = state_, reducer, weight] { rank->begin_step(reducer, weight); });
  for (; step.next_bucket < step.missing.size() && step.missing[step.next_bucket] == 0; ++step.next_bucket) {
    thread_.post([reduce = step.reducer, bucket = step.next_bucket] {
      reduce->start(bucket);
      reduce->progress();
    });
  }
}

bool ProcessGroup::has_contributed(std::size_t reducer, std::size_t gradient) const {
  return step_of(reducer).has.at(gradient);
}

// A task may outlive its caller, which Ctrl-C interrupts. So what it writes to is shared with it.

StepAgreement ProcessGroup::finish(std::size_t reducer, std::span<float* const> averages) {
  Step& step = step_of(reducer);
  if (step.next_bucket != step.missing.size()) throw InternalError("a step was finished without all of its gradients");
  auto agreement = std::make_shared<StepAgreement>();
  thread_.run([agreement, reducer, rank = state_] {
    NumberedReducer& numbered = *rank->reducers.at(reducer);
    *agreement = numbered.agreement;
    rank->complete(numbered.reducer, agreement->weight);
  });
  request_ = state_->request;
  step.reset();
  for (std::size_t i = 0; i < averages.size(); ++i) std::ranges::copy(step.reducer->average_of(i), averages[i]);
  return *agreement;
}

std::vector<std::string> ProcessGroup::gather_sparse(std::size_t reducer, std::string bytes) {
  auto shared = std::make_shared<std::pair<std::string, std::vector<std::string>>>(std::move(bytes), 0);
  thread_.run([shared, reducer, rank = state_] {
    if (rank->reducers.at(reducer)->sparse == 0) throw InternalError("a reducer of dense gradients got sparse ones");
    shared->second = rank->gather(std::move(shared->first));
  });
  return std::move(shared->second);
}

JoinResult ProcessGroup::join() {
  auto result = std::make_shared<JoinResult>();
  thread_.run([result, rank = state_] { *result = rank->join(); });
  request_ = state_->request;
  return *result;
}

void ProcessGroup::all_reduce_sum(std::span<float> values) {
  auto sums = std::make_shared<std::vector<float>>(values.begin(), values.end());
  thread_.run([sums, rank = state_] {
    (void)rank->agree(Operation::all_reduce, sums->size() % max_detail, 0, false,
                      fmt::format("all-reduces {} numbers of 32 bits", sums->size()));
    for (std::size_t at = 0; at < sums->size(); at += staging_sizes.back()) {
      rank->sum_chunk(std::span(*sums).subspan(at, std::min(staging_sizes.back(), sums->size() - at)));
    }
  });
  std::ranges::copy(*sums, values.begin());
}

void ProcessGroup::all_reduce_sum(std::span<double> values) {
  auto sums = std::make_shared<std::vector<double>>(values.begin(), values.end());
  thread_.run([sums, rank = state_] {
    (void)rank->agree(Operation::all_reduce, fnv1a(fnv1a_basis, sums->size()) % max_detail, 0, false,
                      fmt::format("all-reduces {} numbers of 64 bits", sums->size()));
    constexpr std::size_t at_once = 1U << 14U;
    for (std::size_t at = 0; at < sums->size(); at += at_once) {
      rank->control->all_reduce_sum(std::span(*sums).subspan(at, std::min(at_once, sums->size() - at)));
    }
  });
  std::ranges::copy(*sums, values.begin());
}

std::string ProcessGroup::broadcast(std::string bytes, int root) {
  auto shared = std::make_shared<std::string>(std::move(bytes));
  thread_.run([shared, root, rank = state_] {
    (void)rank->agree(Operation::broadcast, static_cast<std::uint64_t>(root), 0, false,
                      fmt::format("broadcasts from rank {}", root));
    std::uint64_t size = shared->size();
    rank->control->broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
    shared->resize(size);
    rank->control->broadcast(std::as_writable_bytes(std::span(*shared)), root);
  });
  return std::move(*shared);
}

std::vector<std::string> ProcessGroup::all_gather(std::string bytes) {
  auto shared = std::make_shared<std::pair<std::string, std::vector<std::string>>>(std::move(bytes), 0);
  thread_.run([shared, rank = state_] {
    (void)rank->agree(Operation::all_gather, 0, 0, false, "gathers objects");
    shared->second = rank->gather(std::move(shared->first));
  });
  return std::move(shared->second);
}

void ProcessGroup::barrier() {
  // The header is one: it is complete when every rank has sent its part.
  thread_.run([rank = state_] { (void)rank->agree(Operation::barrier, 0, 0, false, "waits in a barrier"); });
}

LockKeeper ProcessGroup::lock_keeper() const { return state_ ? state_->launcher.lock_keeper() : LockKeeper(); }

void ProcessGroup::report(std::uint64_t step, std::uint64_t epoch, double examples) {
  thread_.post([rank = state_, step, epoch, examples] {
    rank->launcher.progress().report_step_end({.step = step,
                                               .epoch = epoch,
                                               .loss = 0,
                                               .examples = examples,
                                               .allreduce_seconds = rank->allreduce_seconds,
                                               .wait_seconds = rank->wait_seconds});
  });
}

void ProcessGroup::close() {
  thread_.run([this] {
    (void)state_->agree(Operation::close, 0, 0, false, "has ended its program");
    state_.reset();
  });
  thread_.stop();
}

void ProcessGroup::report_error(const std::string& message) noexcept { LauncherConnection::report_error(message); }

void ProcessGroup::fail(const std::string& message) noexcept {
  if (!state_) return;
  (void)thread_.run_within(fail_limit_s,
                           [rank = state_, message] { (void)rank->agree(Operation::failed, 0, 0, false, message); });
}

}  // namespace lockstep
