// See caller_callback.hpp.
#include "cli/worker/caller_callback.hpp"

#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_serialization.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr double seconds_between_reports = 0.05;
constexpr std::int64_t max_batches_between_reports = 1000;

/// The chief's JSON object on all ranks. Collective.
json broadcast(RunContext& run_context, const json& message) {
  std::string text = message.dump();
  if (run_context.world().size() == 1) return message;
  const ByteSink sink = [&run_context](std::span<const std::byte> bytes) {
    // The root's buffer is only read.
    run_context.control().broadcast({const_cast<std::byte*>(bytes.data()), bytes.size()}, 0);  // NOLINT
  };
  const ByteSource source = [&run_context](std::span<std::byte> bytes) {
    run_context.control().broadcast(bytes, 0);
    return true;
  };
  if (run_context.world().is_chief()) {
    write_text(sink, text);
    return message;
  }
  return json::parse(read_text(source).value());
}

bool is_interrupt(const json& message) { return message.value("interrupt", false); }

}  // namespace

json describe(const Model& model, const Logs& logs) {
  json values = json::object();
  for (const auto& [name, value] : logs) values[name] = to_json_number(value);
  return {{"logs", values}, {"iterations", model.iterations()}, {"learning_rate", model.learning_rate()}};
}

CallerCallback::CallerCallback(ModelParts& parts, CallerChannel* channel, CallerCallbackOptions options)
    : parts_(parts), channel_(channel), options_(std::move(options)), last_report_(monotonic_seconds()) {}

json CallerCallback::wait_for_answer(const json& event) {
  while (true) {
    json message = channel_->receive([this] { parts_.run_context->report_busy(); });
    if (is_interrupt(message)) return {{"interrupt", true}};
    // What answers an event of an earlier generation is not for this one.
    if (message.value("event", json()) == event["event"] && message.value("epoch", -1) == event["epoch"].get<int>() &&
        message.value("step", -1) == event["step"].get<int>()) {
      return message;
    }
  }
}

void CallerCallback::ask(Model& model, json event) {
  parts_.run_context->report_busy();  // a callback of the caller may take long
  json answer;
  if (channel_ != nullptr) {
    event["wait"] = true;
    channel_->send(event);
    answer = wait_for_answer(event);
  }
  answer = broadcast(*parts_.run_context, answer);
  if (is_interrupt(answer)) throw Interrupted();
  if (answer.contains("learning_rate")) model.set_learning_rate(answer["learning_rate"].get<double>());
  if (answer.value("stop", false)) model.stop_training();
  last_report_ = monotonic_seconds();
}

void CallerCallback::report(json event) {
  json decision;
  if (channel_ != nullptr) {
    event["wait"] = false;
    channel_->send(event);
    bool interrupted = false;
    while (const auto message = channel_->poll()) interrupted = interrupted || is_interrupt(*message);
    const double now = monotonic_seconds();
    const double seconds_per_batch = (now - last_report_) / static_cast<double>(batches_since_report_);
    const double next = std::floor(seconds_between_reports / std::max(seconds_per_batch, 1e-9));
    decision = {{"interrupt", interrupted},
                {"next", std::clamp(static_cast<std::int64_t>(std::min(next, 1e9)), std::int64_t{1},
                                    max_batches_between_reports)}};
    last_report_ = now;
  }
  decision = broadcast(*parts_.run_context, decision);
  if (is_interrupt(decision)) throw Interrupted();
  batches_until_report_ = decision["next"].get<std::int64_t>();
}

void CallerCallback::on_epoch_begin(Model& model, int epoch) {
  // From now on the data of the epoch before is gone, so a restart must not go back to it.
  if (!options_.refilled.empty()) parts_.run_context->writer().wait();
  json event = describe(model, {});
  event.update({{"event", "epoch_begin"}, {"epoch", epoch}, {"step", 0}});
  ask(model, std::move(event));
  for (Dataset* data : options_.refilled) {
    data->id = DatasetId();
    model.validate(*data);
  }
}

void CallerCallback::on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) {
  ++batches_since_report_;
  if (!options_.waits_for_batches && batches_since_report_ < batches_until_report_) return;
  json event = describe(model, model.to_logs(epoch_so_far));
  event.update({{"event", "batch"}, {"epoch", parts_.session.position().epoch}, {"step", batch}});
  if (options_.waits_for_batches) {
    ask(model, std::move(event));
  } else {
    report(std::move(event));
  }
  batches_since_report_ = 0;
}

void CallerCallback::on_epoch_end(Model& model, int epoch, Logs& logs) {
  const bool has_state = options_.state_descriptor >= 0 && write_state(parts_, options_.state_descriptor);
  json event = describe(model, logs);
  event.update(
      {{"event", "epoch_end"}, {"epoch", epoch}, {"step", parts_.session.position().step}, {"state", has_state}});
  ask(model, std::move(event));
}

bool write_state(ModelParts& parts, int descriptor) {
  CheckpointWriter& checkpoints = parts.checkpoints;
  if (!checkpoints.participates()) return true;
  parts.run_context->writer().wait();
  Snapshot& snapshot = checkpoints.take_snapshot_to_write_now();
  if (!parts.run_context->world().is_chief()) return true;
  try {
    snapshot.visit([descriptor](const ModelData& data) {
      Hdf5Writer writer(estimate_file_size(data));
      write_descriptor(descriptor, write_keras_weights(writer, data));
    });
  } catch (const DataError&) {
    return false;
  }
  return true;
}

void write_descriptor(int descriptor, std::span<const std::byte> content) {
  bool failed = ftruncate(descriptor, 0) != 0;
  for (std::size_t written = 0; written < content.size() && !failed;) {
    const ssize_t count =
        pwrite(descriptor, content.data() + written, content.size() - written, static_cast<off_t>(written));
    if (count > 0) written += static_cast<std::size_t>(count);
    failed = count < 0 && errno != EINTR;
  }
  if (failed) {
    throw IoError(
        fmt::format("cannot hand {} bytes to the caller: {}", content.size(), std::generic_category().message(errno)));
  }
}

}  // namespace lockstep
