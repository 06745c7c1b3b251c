// See task_message.hpp.
#include "cluster/parameter_server/task_message.hpp"

namespace lockstep {

std::span<const std::byte> ModelMessage::data() const noexcept {
  return std::as_bytes(std::span(body)).subspan(beginning_bytes);
}

bool is_model_message(const Frame& frame) noexcept {
  return frame.kind >= static_cast<std::uint16_t>(ModelMessageKind::step) &&
         frame.kind <= static_cast<std::uint16_t>(ModelMessageKind::round_end);
}

ModelMessage to_model_message(Frame&& frame) {
  BodyReader reader(frame.body);
  ModelMessage message;
  message.kind = static_cast<ModelMessageKind>(frame.kind);
  message.model = reader.number();
  message.iteration = reader.number();
  message.shard = reader.number();
  message.body = std::move(frame.body);
  message.is_placed = frame.is_placed;
  return message;
}

Frame to_frame(ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration, std::uint64_t shard,
               std::span<const std::span<const std::byte>> parts) {
  BodyWriter writer;
  writer.number(model).number(iteration).number(shard);
  for (const std::span<const std::byte> part : parts) writer.rest(part);
  return {static_cast<std::uint16_t>(kind), writer.take()};
}

SharedBytes encode_beginning(ModelMessageKind kind, std::uint64_t model, std::uint64_t iteration, std::uint64_t shard,
                             std::size_t data_bytes) {
  return std::make_shared<const std::string>(encode(to_frame(kind, model, iteration, shard, {}), data_bytes));
}

Frame to_frame(const Contribution& message) {
  return {Contribution::kind, BodyWriter().number(message.group).number(message.number).text(message.bytes).take()};
}

Contribution to_contribution(const Frame& frame) {
  BodyReader reader(frame.body);
  Contribution message;
  message.group = reader.number();
  message.number = reader.number();
  message.bytes = reader.text();
  reader.finish();
  return message;
}

Frame to_frame(const Contributions& message) {
  BodyWriter writer;
  writer.number(message.group).number(message.number).number(message.parts.size());
  for (const std::string& part : message.parts) writer.text(part);
  return {Contributions::kind, writer.take()};
}

Contributions to_contributions(const Frame& frame) {
  BodyReader reader(frame.body);
  Contributions message;
  message.group = reader.number();
  message.number = reader.number();
  message.parts.resize(reader.count(sizeof(std::uint64_t)));
  for (std::string& part : message.parts) part = reader.text();
  reader.finish();
  return message;
}

Frame to_frame(const StopTask& message) { return {StopTask::kind, BodyWriter().number(message.request).take()}; }

StopTask to_stop_task(const Frame& frame) {
  BodyReader reader(frame.body);
  const StopTask message{reader.number()};
  reader.finish();
  return message;
}

}  // namespace lockstep
