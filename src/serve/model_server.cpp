// See model_server.hpp. Two threads: one speaks HTTP and reads JSON, the caller's one computes, as MPI and OpenMP want.
#include "serve/model_server.hpp"

#include "checkpoint/newest_model.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "serve/predict_json.hpp"
#include "serve/prediction_queue.hpp"
#include "serve/serving_api.hpp"
#include "serve/serving_metrics.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::chrono::milliseconds look_interval{500};
constexpr double retry_interval_s = 5;

/// Whether a file gives the same error until it changes. A volume may be back, or memory free, a moment later.
bool is_lasting(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  return own != nullptr && (own->code() == ExitCode::data || own->code() == ExitCode::usage);
}

bool scales_inputs(const Architecture& model) {
  return std::ranges::any_of(model.layers(), [](const LayerInfo& layer) {
    return layer.class_name == "Rescaling" || layer.class_name == "Normalization";
  });
}

std::string no_model_yet(const std::filesystem::path& place) {
  std::error_code unknown;
  const bool is_there = std::filesystem::exists(place, unknown) || unknown;
  return place.string() + (is_there ? " holds no model yet" : " does not exist yet");
}

/// The model in service, and the file that it was read from.
class ModelInService {
 public:
  ModelInService(MultiWorkerMirroredStrategy& strategy, const ServeOptions& options, const ReadFacts& read_facts,
                 SharedState& shared, ServingMetrics& metrics)
      : strategy_(strategy), options_(options), read_facts_(read_facts), shared_(shared), metrics_(metrics) {}

  /// Loads the newest model that can be served if there is one. Throws if the path names a file that cannot be served
  /// as it is: unlike in a directory, no other file can take its place.
  void load_first() {
    try {
      load_newer();
    } catch (const std::exception& error) {
      std::error_code unknown;
      if (is_lasting(error) && std::filesystem::is_regular_file(options_.model, unknown)) throw;
      keep_serving(error);
    }
  }

  /// Loads a newer file if there is one.
  void refresh() {
    try {
      load_newer();
    } catch (const std::exception& error) {
      keep_serving(error);
    }
  }

  /// Computes the requests' predictions and completes them. A number that only the model finds wrong fails the request
  /// that holds it, and no other.
  void predict(std::vector<WaitingRequest> requests) {
    const std::shared_ptr<const ServedModel> served = shared_.get().model;
    std::erase_if(requests, [&](const WaitingRequest& each) {
      if (each.signature == served->signature) return false;
      each.complete({.code = 503, .error = "another model, of other inputs, was loaded meanwhile; send it again"});
      return true;
    });
    if (requests.empty()) return;
    std::size_t examples = 0;
    for (const WaitingRequest& each : requests) examples += each.request.examples;
    metrics_.count_batch(examples);
    ExampleValues outputs;
    try {
      outputs = outputs_of(*model_, requests, examples, served->signature);
    } catch (const DataError& error) {
      return predict_each_alone(std::move(requests), {.code = 400, .error = error.what()});
    } catch (const std::bad_alloc&) {
      return predict_each_alone(std::move(requests), {.code = 503, .error = std::string(out_of_memory)});
    } catch (const std::exception& error) {
      log_warning(error.what());
      for (const WaitingRequest& each : requests) each.complete({.code = 500, .error = error.what()});
      return;
    }
    std::size_t begin = 0;
    for (const WaitingRequest& each : requests) {
      each.complete(prediction_in(outputs, served->signature, begin, each.request.examples));
      begin += each.request.examples;
    }
  }

 private:
  /// A file that cannot be served, until it changes.
  struct Failure {
    ModelVersion version;
    std::exception_ptr error;
  };

  [[nodiscard]] bool has_failed(const ModelVersion& version) const {
    return std::ranges::find(failures_, version, &Failure::version) != failures_.end();
  }

  /// Loads the newest model that can be served, unless it is in service. Throws the newest file's error if that file
  /// cannot be served.
  void load_newer() {
    const std::vector<ModelVersion> models = models_of(options_.model);
    const auto is_there = [&models](const ModelVersion& version) {
      return std::ranges::find(models, version) != models.end();
    };
    if (models == seen_ && monotonic_seconds() < retry_at_) {
      if (ServedState state = shared_.get(); state.model && is_there(state.model->version)) refresh_facts(state);
      return;
    }
    seen_ = models;
    retry_at_ = std::numeric_limits<double>::infinity();
    if (models.empty()) throw IoError(no_model_yet(options_.model));
    std::erase_if(failures_, [&is_there](const Failure& failure) { return !is_there(failure.version); });
    for (const ModelVersion& version : models) {
      if (has_failed(version)) continue;
      const std::shared_ptr<const ServedModel> served = shared_.get().model;
      // An older file replaces the model in service only if it is the newest file now.
      if (served && version != models.front() && version.time_ms <= served->version.time_ms) break;
      if ((served && version == served->version) || try_to_load(version)) break;
    }
    if (has_failed(models.front()))
      std::rethrow_exception(std::ranges::find(failures_, models.front(), &Failure::version)->error);
    ServedState state = shared_.get();
    state.problem.clear();
    shared_.set(std::move(state));
  }

  /// Returns false if the file cannot be served until it changes. Throws the error if it may pass.
  bool try_to_load(const ModelVersion& version) {
    strategy_.report_busy();
    ServedState state = shared_.get();
    try {
      load(version, state);
    } catch (const std::exception& error) {
      metrics_.count_load(false);
      if (!is_lasting(error)) throw;
      failures_.push_back({version, std::current_exception()});
      return false;
    }
    log_info(fmt::format("serving {} of version {}", version.file.string(), version.time_ms));
    shared_.set(std::move(state));
    return true;
  }

  /// Tells why the newest model is not in service, and which one is.
  void keep_serving(const std::exception& error) {
    ServedState state = shared_.get();
    if (!is_lasting(error)) retry_at_ = monotonic_seconds() + retry_interval_s;
    std::string problem = error.what();
    if (state.model) {
      const ModelVersion& served = state.model->version;
      problem += fmt::format("; in service: {} of version {}", served.file.string(), served.time_ms);
    }
    if (problem == state.problem) return;
    log_warning(problem);
    state.problem = problem;
    shared_.set(std::move(state));
  }

  /// After requests failed together, so that only those fail that must. `failure`: of a request that was alone already.
  void predict_each_alone(std::vector<WaitingRequest> requests, const Prediction& failure) {
    if (requests.size() == 1) return requests.front().complete(failure);
    for (WaitingRequest& each : requests) {
      std::vector<WaitingRequest> alone;
      alone.push_back(std::move(each));
      predict(std::move(alone));
    }
  }

  /// Some examples of a batch's outputs.
  static Prediction prediction_in(const ExampleValues& outputs, const ModelSignature& signature, std::size_t begin,
                                  std::size_t examples) try {
    Prediction prediction{.signature = signature};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto elements = static_cast<std::size_t>(signature.outputs[i].shape.elements());
      const auto first = outputs[i].begin() + static_cast<std::ptrdiff_t>(begin * elements);
      prediction.outputs.emplace_back(first, first + static_cast<std::ptrdiff_t>(examples * elements));
    }
    return prediction;
  } catch (const std::bad_alloc&) {
    return {.code = 503, .error = std::string(out_of_memory)};
  }

  /// A training writes its record after its model.
  void refresh_facts(ServedState& state) {
    if (monotonic_seconds() < read_facts_at_) return;
    read_facts_at_ = monotonic_seconds() + retry_interval_s;
    const ServedModel& old = *state.model;
    ServedModel served = with_facts(old);
    if (served.scores.empty() || (served.scores == old.scores && served.pixel_scale == old.pixel_scale)) return;
    state.model = std::make_shared<const ServedModel>(std::move(served));
    shared_.set(std::move(state));
  }

  [[nodiscard]] ServedModel with_facts(ServedModel served) const {
    const ModelFacts facts = read_facts_(served.version.file, iterations_);
    served.scores = facts.scores;
    served.pixel_scale = takes_bytes_ ? 255 : 255 * facts.input_scale.value_or(1.0 / 255);
    return served;
  }

  void load(const ModelVersion& version, ServedState& state) {
    std::optional<std::uint64_t> iterations;
    const ChooseCompileOptions choose = [&](const Architecture& /*model*/, const auto& saved) {
      if (saved) iterations = saved->saved_iterations;
      return CompileOptions{.loss = MeanSquaredError()};  // not computed; accepts outputs of any shape
    };
    Model loaded = strategy_.load_model(version.file, choose);
    const ModelSignature signature = signature_of(loaded.architecture());
    for (std::size_t size = 1; size <= options_.max_batch; size *= 2) warm_up(loaded, size, signature);
    iterations_ = iterations;
    takes_bytes_ = scales_inputs(loaded.architecture());
    auto served = std::make_shared<const ServedModel>(with_facts({.version = version, .signature = signature}));
    read_facts_at_ = monotonic_seconds() + retry_interval_s;
    model_.emplace(std::move(loaded));
    state.model = std::move(served);
    metrics_.count_load(true);
  }

  /// Kernels for this many examples are made now, not while somebody waits.
  void warm_up(Model& model, std::size_t examples, const ModelSignature& signature) const {
    WaitingRequest zeros;
    zeros.request.examples = examples;
    for (const TensorSignature& input : signature.inputs)
      zeros.request.inputs.emplace_back(examples * static_cast<std::size_t>(input.shape.elements()));
    static_cast<void>(outputs_of(model, std::span(&zeros, 1), examples, signature));
  }

  /// Batches have a power of two of examples, the last repeated, so that few kernels serve all sizes.
  [[nodiscard]] ExampleValues outputs_of(Model& model, std::span<const WaitingRequest> requests, std::size_t examples,
                                         const ModelSignature& signature) const {
    const std::size_t padded = examples <= options_.max_batch ? std::bit_ceil(examples) : examples;
    Dataset data;
    for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
      const TensorSignature& input = signature.inputs[i];
      const auto elements = static_cast<std::size_t>(input.shape.elements());
      std::vector<float> values;
      values.reserve(padded * elements);
      for (const WaitingRequest& each : requests) {
        const std::vector<float>& own = each.request.inputs[i];
        values.insert(values.end(), own.begin(), own.end());
      }
      while (values.size() < padded * elements) {
        const std::size_t last = values.size() - elements;
        for (std::size_t k = 0; k < elements; ++k) values.push_back(values[last + k]);
      }
      data.inputs.push_back(
          {.shape = input.shape, .values = SharedArray<float>(std::move(values)), .name = input.name});
    }
    data.source = "a request";
    ExampleValues outputs =
        model.predict_outputs(data, {.batch_size = static_cast<int>(std::bit_ceil(options_.max_batch))});
    for (std::size_t i = 0; i < outputs.size(); ++i)
      outputs[i].resize(examples * static_cast<std::size_t>(signature.outputs[i].shape.elements()));
    return outputs;
  }

  MultiWorkerMirroredStrategy& strategy_;
  const ServeOptions& options_;
  const ReadFacts& read_facts_;
  SharedState& shared_;
  ServingMetrics& metrics_;
  std::vector<ModelVersion> seen_;  ///< at the last look that tried to load them
  std::vector<Failure> failures_;
  double retry_at_ = 0;  ///< if nothing changes until then
  std::optional<Model> model_;
  std::optional<std::uint64_t> iterations_;  ///< of the model
  bool takes_bytes_ = false;                 ///< it scales them itself
  double read_facts_at_ = 0;
};

}  // namespace

sigset_t ending_signals() noexcept {
  sigset_t signals{};
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

void serve_models(MultiWorkerMirroredStrategy& strategy, const Socket& listener, const ServeOptions& options,
                  const ReadFacts& read_facts) {
  SharedState shared;
  ServingMetrics metrics;
  PredictionQueue queue(options.max_waiting);
  ServingApi api(options.name, shared, queue, metrics, options.max_rate, options.http.max_body_bytes);
  ModelInService model(strategy, options, read_facts, shared, metrics);
  model.load_first();
  HttpServer server(
      listener,
      [&api](const RestRequest& request, const HttpServer::Answer& answer) { return api.handle(request, answer); },
      options.http);
  std::thread speaker([&server] { server.run(); });
  std::thread watcher([&server, &queue] {
    const sigset_t signals = ending_signals();
    int signal = 0;
    sigwait(&signals, &signal);
    queue.stop();  // first, so that the server waits for all requests that the queue has taken
    server.stop();
  });
  auto next_look = std::chrono::steady_clock::now() + look_interval;
  while (!queue.is_stopped() || queue.size() > 0) {
    std::vector<WaitingRequest> requests = queue.take(options.max_batch, options.max_delay, look_interval);
    if (!requests.empty()) model.predict(std::move(requests));
    if (std::chrono::steady_clock::now() < next_look) continue;
    strategy.report_busy();
    model.refresh();
    next_look = std::chrono::steady_clock::now() + look_interval;
  }
  watcher.join();
  speaker.join();
}

}  // namespace lockstep
