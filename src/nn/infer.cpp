// Shape inference, layer by layer: the rules of keras.layers and the errors of whoever breaks them.
#include "nn/infer.hpp"

#include "nn/window.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Of one example's activations and of one parameter; what 32-bit indices of the libraries below can name.
constexpr std::int64_t max_elements = std::numeric_limits<std::int32_t>::max();

constexpr std::array<LayerClass, std::variant_size_v<Layer>> classes{{
    {"InputLayer", "input_layer"},
    {"Reshape", "reshape"},
    {"Rescaling", "rescaling"},
    {"Flatten", "flatten"},
    {"Conv2D", "conv2d"},
    {"Dense", "dense"},
    {"MaxPooling2D", "max_pooling2d"},
    {"AveragePooling2D", "average_pooling2d"},
    {"GlobalAveragePooling2D", "global_average_pooling2d"},
    {"Dropout", "dropout"},
    {"BatchNormalization", "batch_normalization"},
    {"Activation", "activation"},
}};

std::string to_string(Extent extent) { return Shape{extent.height, extent.width}.to_string(); }

class Inference {
 public:
  explicit Inference(LayerInfo& info) : info_(info) {}

  void operator()(Input& input) {
    if (input.shape.rank() == 0) fail("needs a shape of at least one extent, e.g. Input({784})");
    for (const std::int64_t extent : input.shape.extents()) {
      if (extent < 1) fail("has the shape " + input.shape.to_string() + ", but every extent must be at least 1");
    }
    info_.input_shape = input.shape;
    set_output(input.shape);
  }

  void operator()(Reshape& reshape) {
    const std::string target = reshape.target_shape.to_string();
    std::vector<std::int64_t> extents(reshape.target_shape.extents().begin(), reshape.target_shape.extents().end());
    if (extents.empty()) fail("needs a target shape of at least one extent");
    std::int64_t* unknown = nullptr;
    std::int64_t known = 1;
    for (std::int64_t& extent : extents) {
      if (extent == -1) {
        if (unknown != nullptr) fail("has the target shape " + target + ", but only one extent may be -1");
        unknown = &extent;
      } else if (extent < 1) {
        fail("has the target shape " + target + ", but extents must be at least 1 (or one of them -1)");
      } else if (__builtin_mul_overflow(known, extent, &known)) {
        fail("has the target shape " + target + ", which is too large");
      }
    }
    const std::int64_t elements = info_.input_shape.elements();
    if (unknown != nullptr ? elements % known != 0 : elements != known) {
      fail("cannot make " + target + " of its input " + info_.input_shape.to_string() + ", which has " +
           std::to_string(elements) + " elements");
    }
    if (unknown != nullptr) *unknown = elements / known;
    set_output(Shape(std::move(extents)));
  }

  void operator()(Rescaling& rescaling) {
    if (!std::isfinite(rescaling.scale) || !std::isfinite(rescaling.offset)) {
      fail("needs a scale and an offset that are finite numbers");
    }
    set_output(info_.input_shape);
  }

  void operator()(Flatten&) { set_output(Shape{info_.input_shape.elements()}); }

  void operator()(Conv2D& conv) {
    need_image();
    need_positive("filters", conv.filters);
    need_positive("kernel_size", conv.kernel_size);
    need_positive("strides", conv.strides);
    need_positive("dilation_rate", conv.dilation_rate);
    const auto beyond_one = [](Extent extent) { return extent.height > 1 || extent.width > 1; };
    if (beyond_one(conv.strides) && beyond_one(conv.dilation_rate)) {
      fail("has strides " + to_string(conv.strides) + " and dilation_rate " + to_string(conv.dilation_rate) +
           ", but only one of them may be above 1");
    }
    const std::int64_t channels = info_.input_shape[2];
    slide("kernel", conv.kernel_size, conv.strides, conv.dilation_rate, conv.padding, conv.filters);
    add("kernel", Shape{conv.kernel_size.height, conv.kernel_size.width, channels, conv.filters},
        conv.kernel_initializer);
    if (conv.use_bias) add("bias", Shape{conv.filters}, conv.bias_initializer);
  }

  void operator()(Dense& dense) {
    if (info_.input_shape.rank() != 1) {
      fail("needs one vector an example, (features,), but its input is " + info_.input_shape.to_string() +
           "; put Flatten() before it");
    }
    need_positive("units", dense.units);
    add("kernel", Shape{info_.input_shape[0], dense.units}, dense.kernel_initializer);
    if (dense.use_bias) add("bias", Shape{dense.units}, dense.bias_initializer);
    set_output(Shape{dense.units});
  }

  void operator()(MaxPooling2D& pooling) { pool(pooling); }
  void operator()(AveragePooling2D& pooling) { pool(pooling); }

  void operator()(GlobalAveragePooling2D&) {
    need_image();
    set_output(Shape{info_.input_shape[2]});
  }

  void operator()(Dropout& dropout) {
    if (!(dropout.rate >= 0 && dropout.rate < 1)) {
      std::ostringstream problem;
      problem << "has the rate " << dropout.rate << ", but it must be at least 0 and below 1";
      fail(problem.str());
    }
    set_output(info_.input_shape);
  }

  void operator()(BatchNormalization& normalization) {
    if (!(normalization.momentum >= 0 && normalization.momentum <= 1)) fail("needs a momentum between 0 and 1");
    if (!(normalization.epsilon > 0 && normalization.epsilon < std::numeric_limits<double>::infinity())) {
      fail("needs an epsilon above 0");
    }
    const Shape channels{info_.input_shape[info_.input_shape.rank() - 1]};
    if (normalization.scale) add("gamma", channels, Initializer::ones);
    if (normalization.center) add("beta", channels, Initializer::zeros);
    add("moving_mean", channels, Initializer::zeros, false);
    add("moving_variance", channels, Initializer::ones, false);
    set_output(info_.input_shape);
  }

  void operator()(Activation&) { set_output(info_.input_shape); }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError("Layer '" + info_.name + "' (" + info_.class_name + ") " + problem + ".");
  }

  void need_image() const {
    if (info_.input_shape.rank() == 3) return;
    fail("needs an input of rank 3, (height, width, channels), but its input is " + info_.input_shape.to_string() +
         "; put a Reshape before it, e.g. Reshape({28, 28, 1})");
  }

  void need_positive(std::string_view option, int value) const {
    if (value < 1) fail("has " + std::string(option) + " " + std::to_string(value) + ", but it must be at least 1");
  }

  void need_positive(std::string_view option, Extent extent) const {
    if (extent.height >= 1 && extent.width >= 1) return;
    fail("has " + std::string(option) + " " + to_string(extent) + ", but both must be at least 1");
  }

  void need_size(const Shape& shape, std::string_view what) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape.extents()) {
      if (__builtin_mul_overflow(elements, extent, &elements) || elements > max_elements) {
        fail("would have the " + std::string(what) + " " + shape.to_string() + ", more than the " +
             std::to_string(max_elements) + " elements that are supported");
      }
    }
  }

  void set_output(Shape shape) {
    need_size(shape, "output");
    info_.output_shape = std::move(shape);
  }

  void add(std::string name, Shape shape, Initializer initializer, bool trainable = true) {
    need_size(shape, name);
    info_.parameters.push_back({std::move(name), std::move(shape), initializer, trainable});
  }

  void slide(std::string_view what, Extent kernel, Extent strides, Extent dilation, Padding padding,
             std::int64_t channels) {
    const Shape& input = info_.input_shape;
    const Window rows{input[0], kernel.height, strides.height, dilation.height, padding};
    const Window columns{input[1], kernel.width, strides.width, dilation.width, padding};
    if (rows.output() < 1 || columns.output() < 1) {
      fail("slides a " + std::string(what) + " that reaches over " + std::to_string(rows.reach()) + " x " +
           std::to_string(columns.reach()) + " cells, but its input is " + input.to_string() +
           "; make it smaller or use padding 'same'");
    }
    set_output(Shape{rows.output(), columns.output(), channels});
  }

  template <class Pooling>
  void pool(Pooling& pooling) {
    need_image();
    need_positive("pool_size", pooling.pool_size);
    if (pooling.strides.height == 0) pooling.strides.height = pooling.pool_size.height;
    if (pooling.strides.width == 0) pooling.strides.width = pooling.pool_size.width;
    need_positive("strides", pooling.strides);
    slide("pool", pooling.pool_size, pooling.strides, 1, pooling.padding, info_.input_shape[2]);
  }

  LayerInfo& info_;
};

}  // namespace

LayerClass class_of(const Layer& layer) noexcept { return classes[layer.index()]; }

void infer(LayerInfo& info) {
  Inference inference(info);
  std::visit(inference, info.layer);
}

}  // namespace lockstep
