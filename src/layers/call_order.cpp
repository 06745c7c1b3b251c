// See call_order.hpp.
#include "layers/call_order.hpp"

#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr int none = -1;

class CallOrder {
 public:
  explicit CallOrder(const LayerGraph& graph)
      : graph_(graph),
        states_(graph.calls.size(), State::unseen),
        depths_(graph.calls.size(), 0),
        first_visits_(graph.layers.size(), none),
        layer_depths_(graph.layers.size(), 0) {}

  LayerGraph run() {
    for (const int output : graph_.outputs) walk(output);
    for (const int input : graph_.inputs) {  // one that no output depends on comes first of its depth, as in Keras
      if (states_[input] == State::unseen) finished_.insert(finished_.begin(), input);
    }
    find_depths();
    return reordered();
  }

 private:
  enum class State { unseen, open, finished };

  /// A depth-first walk against the direction of the data. It keeps its own stack, because files may nest deeply.
  void walk(int output) {
    struct Frame {
      int call;
      std::size_t next_input;
    };
    std::vector<Frame> stack;
    const auto enter = [&](int call) {
      if (states_[call] == State::finished) return;
      const int layer = graph_.calls[call].layer;
      if (states_[call] == State::open) {
        throw UsageError("layer '" + name_of(graph_.layers[layer]) + "' (" +
                         std::string(class_name_of(graph_.layers[layer])) + ") depends on its own output");
      }
      if (first_visits_[layer] == none) first_visits_[layer] = visits_++;
      states_[call] = State::open;
      stack.push_back({call, 0});
    };
    enter(output);
    while (!stack.empty()) {
      Frame& top = stack.back();
      const std::vector<int>& inputs = graph_.calls[top.call].inputs;
      if (top.next_input < inputs.size()) {
        enter(inputs[top.next_input++]);
        continue;
      }
      states_[top.call] = State::finished;
      finished_.push_back(top.call);
      stack.pop_back();
    }
  }

  void find_depths() {
    for (std::size_t i = finished_.size(); i-- > 0;) {
      const int call = finished_[i];
      int& of_layer = layer_depths_[graph_.calls[call].layer];
      depths_[call] = of_layer = std::max(depths_[call], of_layer);
      for (const int input : graph_.calls[call].inputs) depths_[input] = std::max(depths_[input], depths_[call] + 1);
    }
  }

  [[nodiscard]] LayerGraph reordered() const {
    std::vector<int> layers;
    for (const int call : finished_) {
      const int layer = graph_.calls[call].layer;
      if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
    }
    std::stable_sort(layers.begin(), layers.end(), [&](int a, int b) {
      return std::pair(-layer_depths_[a], first_visits_[a]) < std::pair(-layer_depths_[b], first_visits_[b]);
    });
    const auto place_in = [](const std::vector<int>& order, std::size_t count) {
      std::vector<int> places(count, none);
      for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
      return places;
    };
    const std::vector<int> layer_places = place_in(layers, graph_.layers.size());
    const std::vector<int> call_places = place_in(finished_, graph_.calls.size());
    const auto moved = [&](const std::vector<int>& calls) {
      std::vector<int> places;
      places.reserve(calls.size());
      for (const int call : calls) places.push_back(call_places[call]);
      return places;
    };
    LayerGraph ordered{.layers = {}, .calls = {}, .inputs = moved(graph_.inputs), .outputs = moved(graph_.outputs)};
    for (const int layer : layers) ordered.layers.push_back(graph_.layers[layer]);
    for (const int call : finished_) {
      ordered.calls.push_back(
          {.layer = layer_places[graph_.calls[call].layer], .inputs = moved(graph_.calls[call].inputs)});
    }
    return ordered;
  }

  const LayerGraph& graph_;
  std::vector<State> states_;
  std::vector<int> depths_;
  std::vector<int> first_visits_;
  std::vector<int> layer_depths_;
  std::vector<int> finished_;
  int visits_ = 0;
};

}  // namespace

LayerGraph order_as_keras(const LayerGraph& graph) { return CallOrder(graph).run(); }

}  // namespace lockstep
