// See serving_api.hpp.
#include "serve/serving_api.hpp"

#include "core/clock.hpp"
#include "core/printable.hpp"
#include "serve/page.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using nlohmann::json;

RestReply reply_with(const json& body, int code = 200) {
  return {.code = code, .body = body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

RestReply failure(int code, const std::string& sentence) { return reply_with({{"error", sentence}}, code); }

bool reads(const RestRequest& request) { return request.method == "GET" || request.method == "HEAD"; }

RestReply not_allowed(std::string_view methods) {
  return failure(405, fmt::format("this path takes {} only", methods));
}

json tensors_of(const std::vector<TensorSignature>& tensors) {
  json described = json::object();
  for (const TensorSignature& tensor : tensors) {
    json dimensions = json::array({{{"size", "-1"}, {"name", ""}}});
    for (const std::int64_t extent : tensor.shape.extents())
      dimensions.push_back({{"size", std::to_string(extent)}, {"name", ""}});
    described[tensor.name] = {
        {"dtype", "DT_FLOAT"}, {"tensor_shape", {{"dim", dimensions}, {"unknown_rank", false}}}, {"name", tensor.name}};
  }
  return described;
}

json metadata_of(const std::string& name, const ServedModel& model) {
  const json signature = {{"inputs", tensors_of(model.signature.inputs)},
                          {"outputs", tensors_of(model.signature.outputs)},
                          {"method_name", "tensorflow/serving/predict"}};
  return {{"model_spec", {{"name", name}, {"signature_name", ""}, {"version", std::to_string(model.version.time_ms)}}},
          {"metadata", {{"signature_def", {{"signature_def", {{"serving_default", signature}}}}}}}};
}

json status_of(const ServedModel& model) {
  return {{"model_version_status",
           {{{"version", std::to_string(model.version.time_ms)},
             {"state", "AVAILABLE"},
             {"status", {{"error_code", "OK"}, {"error_message", ""}}}}}}};
}

json shape_of(const Shape& shape) { return json(shape.extents()); }

/// In one example of all these tensors.
std::size_t numbers_of(const std::vector<TensorSignature>& tensors) {
  std::size_t numbers = 0;
  for (const TensorSignature& tensor : tensors) numbers += static_cast<std::size_t>(tensor.shape.elements());
  return numbers;
}

/// What the page shows.
json description_of(const std::string& name, const ServedState& state) {
  json described = {{"name", name}, {"problem", state.problem}, {"now_ms", wall_clock_seconds() * 1000}};
  if (!state.model) return described;
  const ServedModel& model = *state.model;
  described["file"] = model.version.file.filename().string();
  described["version"] = std::to_string(model.version.time_ms);
  described["written_ms"] = model.version.time_ms;
  for (const auto& [what, value] : model.scores)
    if (std::isfinite(value)) described["scores"][what] = value;
  described["pixel_scale"] = model.pixel_scale;
  for (const auto& [key, tensors] :
       {std::pair("inputs", &model.signature.inputs), std::pair("outputs", &model.signature.outputs)}) {
    for (const TensorSignature& tensor : *tensors)
      described[key].push_back({{"name", tensor.name}, {"shape", shape_of(tensor.shape)}});
  }
  return described;
}

bool take_prefix(std::string_view& path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  path.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::optional<RestReply> ServingApi::handle(const RestRequest& request, const HttpServer::Answer& answer) {
  if (request.path.starts_with("/v1/models/")) return handle_model(request, answer);
  const bool is_known =
      request.path == "/" || request.path == "/model" || request.path == "/healthz" || request.path == "/metrics";
  if (!is_known) return failure(404, "there is no such path; the model is at /v1/models/" + name_);
  if (!reads(request)) return not_allowed("GET");
  const ServedState state = state_.get();
  if (request.path == "/") return RestReply{.type = "text/html; charset=utf-8", .body = std::string(page_text())};
  if (request.path == "/model") return reply_with(description_of(name_, state));
  if (request.path == "/metrics")
    return RestReply{.type = "text/plain; version=0.0.4",
                     .body = metrics_.to_text(state, queue_.size(), request.connections)};
  const std::string health = state.problem.empty() ? "ok" : state.problem;
  return RestReply{.code = state.model ? 200 : 503, .type = "text/plain; charset=utf-8", .body = health + "\n"};
}

std::optional<RestReply> ServingApi::handle_model(const RestRequest& request, const HttpServer::Answer& answer) {
  std::string_view path = request.path;
  static_cast<void>(take_prefix(path, "/v1/models/"));
  const ServedState state = state_.get();
  if (!take_prefix(path, name_) || (!path.empty() && path.front() != '/' && path.front() != ':'))
    return failure(404, fmt::format("the only model is {}", name_));
  if (!state.model) return failure(503, state.problem);
  if (take_prefix(path, "/versions/")) {
    const std::string version = std::to_string(state.model->version.time_ms);
    if (!take_prefix(path, version) || (!path.empty() && path.front() != '/' && path.front() != ':'))
      return failure(404, fmt::format("the only version of {} is {}", name_, version));
  }
  if (path == ":predict") {
    if (request.method != "POST") return not_allowed("POST");
    return predict(request, answer);
  }
  if (path == ":classify" || path == ":regress") return failure(501, "only :predict is served");
  if (!path.empty() && path != "/metadata") return failure(404, "there is no such path below the model");
  if (!reads(request)) return not_allowed("GET");
  return reply_with(path.empty() ? status_of(*state.model) : metadata_of(name_, *state.model));
}

std::optional<RestReply> ServingApi::predict(const RestRequest& request, const HttpServer::Answer& answer) {
  const double begin = monotonic_seconds();
  const auto refuse = [&](int code, const std::string& sentence) {
    metrics_.count_reply(code, monotonic_seconds() - begin);
    return failure(code, sentence);
  };
  if (!rate_limiter_.admit(request.client, begin))
    return refuse(429, "too many requests per second from this address; try again in a second");
  const std::shared_ptr<const ServedModel> model = state_.get().model;
  WaitingRequest waiting;
  try {
    waiting.request = parse_predict_request(request.body, model->signature);
  } catch (const DataError& error) {
    return refuse(400, error.what());
  } catch (const std::bad_alloc&) {
    return refuse(503, std::string(out_of_memory));
  }
  const std::size_t examples = waiting.request.examples;
  if (const std::size_t numbers = examples * numbers_of(model->signature.outputs); numbers > max_numbers_) {
    return refuse(413, fmt::format("the predictions for {} examples have {} numbers, more than {}, a quarter of the "
                                   "bytes of --max-body; send fewer examples in a request, or raise --max-body",
                                   examples, numbers, max_numbers_));
  }
  waiting.signature = model->signature;
  waiting.complete = [this, begin, examples, answer,
                      is_columnar = waiting.request.is_columnar](const Prediction& made) {
    RestReply reply;
    try {
      reply = made.code == 200
                  ? RestReply{.body = format_predictions(made.outputs, made.signature, examples, is_columnar)}
                  : failure(made.code, made.error);
    } catch (const std::bad_alloc&) {
      reply = failure(503, std::string(out_of_memory));
    }
    metrics_.count_reply(reply.code, monotonic_seconds() - begin);
    answer(std::move(reply));
  };
  if (!queue_.submit(std::move(waiting))) {
    return refuse(503, queue_.is_stopped() ? "the server is stopping; send the request to another one"
                                           : "too many examples wait already; try again later");
  }
  return std::nullopt;
}

}  // namespace lockstep
