// See layer_registry.hpp.
#include "layers/layer_registry.hpp"

#include "core/variant_types.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Finds the activation function among a layer's fields.
struct ActivationFinder : FieldVisitor {
  std::optional<ActivationFunction> found;

  void required(std::string_view /*key*/, const auto& value, const auto&... /*range*/) { keep(value); }
  void optional(std::string_view /*key*/, const auto& value, const auto&... /*range*/) { keep(value); }

 private:
  template <typename T>
  void keep(const T& value) {
    if constexpr (std::is_same_v<T, ActivationFunction>) found = value;
  }
};

/// Finds the penalty of a layer's output among its fields.
struct ActivityRegularizerFinder : FieldVisitor {
  Regularizer found;

  template <typename T>
  void optional(std::string_view key, const T& value, const auto&... /*range*/) {
    if constexpr (std::is_same_v<T, Regularizer>) {
      if (key == "activity_regularizer") found = value;
    }
  }
};

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

}  // namespace

Layer::Layer(const Layer&) = default;
Layer::Layer(Layer&&) noexcept = default;
Layer& Layer::operator=(const Layer&) = default;
Layer& Layer::operator=(Layer&&) noexcept = default;
Layer::~Layer() = default;

const std::vector<std::string_view>& layer_class_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) { all.push_back(LayerTraits<L>::class_name); });
    return all;
  }();
  return names;
}

std::string_view class_name_of(const Layer& layer) {
  return std::visit(
      []<typename L>(const L& any) {
        if constexpr (requires { LayerTraits<L>::class_name_of(any); }) {
          return LayerTraits<L>::class_name_of(any);
        } else {
          return LayerTraits<L>::class_name;
        }
      },
      layer);
}

std::string_view module_of(std::string_view class_name) {
  std::string_view module = "keras.layers";
  for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) {
    if constexpr (requires { LayerTraits<L>::module; }) {
      if (class_name == LayerTraits<L>::class_name) module = LayerTraits<L>::module;
    }
  });
  return module;
}

std::string to_snake_case(std::string_view class_name) {
  std::string name;
  for (std::size_t i = 0; i < class_name.size(); ++i) {
    const char c = class_name[i];
    const bool begins_word =
        i > 0 && is_upper(c) &&
        (is_lower(class_name[i - 1]) || (i + 1 < class_name.size() && is_lower(class_name[i + 1])));
    if (begins_word) name += '_';
    name += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

const std::string& name_of(const Layer& layer) {
  return std::visit([](const auto& any) -> const std::string& { return any.name; }, layer);
}

bool is_trainable(const Layer& layer) {
  return std::visit(
      []<typename L>(const L& any) {
        if constexpr (std::is_base_of_v<LayerBase, L>) return any.trainable;
        return true;
      },
      layer);
}

void set_trainable(Layer& layer, bool trainable) {
  std::visit(
      [trainable]<typename L>(L& any) {
        if constexpr (std::is_base_of_v<LayerBase, L>) any.trainable = trainable;
      },
      layer);
}

namespace {

/// What a trait of the layer's type says of it, or `otherwise` if the type does not declare the trait.
template <typename Value, typename Trait>
Value optional_trait(const Layer& layer, Value otherwise, const Trait& trait) {
  return std::visit(
      [&]<typename L>(const L& any) -> Value {
        if constexpr (requires { trait(any); }) {
          return trait(any);
        } else {
          return otherwise;
        }
      },
      layer);
}

}  // namespace

bool takes_trainable(const Layer& layer) {
  return optional_trait(
      layer, true, []<typename L>(const L& /*any*/) requires requires { LayerTraits<L>::takes_trainable; } {
        return LayerTraits<L>::takes_trainable;
      });
}

bool reads_raw_numbers(const Layer& layer) {
  return optional_trait(
      layer, false, []<typename L>(const L& /*any*/) requires requires { LayerTraits<L>::reads_raw_numbers; } {
        return LayerTraits<L>::reads_raw_numbers;
      });
}

bool takes_integers(const Layer& layer) {
  return optional_trait(
      layer, false, []<typename L>(const L& /*any*/) requires requires { LayerTraits<L>::takes_integers; } {
        return LayerTraits<L>::takes_integers;
      });
}

bool keeps_numbers(const Layer& layer) {
  return optional_trait(
      layer, false, []<typename L>(const L& /*any*/) requires requires { LayerTraits<L>::keeps_numbers; } {
        return LayerTraits<L>::keeps_numbers;
      });
}

ReturnsInput returns_input(const Layer& layer) {
  return optional_trait(
      layer, ReturnsInput::never, []<typename L>(const L& any) requires requires {
        LayerTraits<L>::returns_input(any);
      } { return LayerTraits<L>::returns_input(any); });
}

ElementOrder element_order_of(const Layer& layer) {
  return optional_trait(
      layer, ElementOrder::significant, []<typename L>(const L& any) requires requires {
        LayerTraits<L>::element_order(any);
      } { return LayerTraits<L>::element_order(any); });
}

Regularizer activity_regularizer_of(const Layer& layer) {
  return std::visit(
      []<typename L>(const L& any) {
        if constexpr (requires { LayerTraits<L>::activity_regularizer(any); }) {
          return LayerTraits<L>::activity_regularizer(any);
        } else {
          ActivityRegularizerFinder finder;
          LayerTraits<L>::fields(finder, any);
          return finder.found;
        }
      },
      layer);
}

std::optional<ActivationFunction> activation_of(const Layer& layer) {
  return std::visit(
      []<typename L>(const L& any) {
        ActivationFinder finder;
        if constexpr (requires { LayerTraits<L>::activation; }) finder.found = LayerTraits<L>::activation;
        LayerTraits<L>::fields(finder, any);
        return finder.found;
      },
      layer);
}

}  // namespace lockstep
