// See data_digest.hpp.
#include "training/data_digest.hpp"

#include "training/options_parser.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <variant>

namespace lockstep {

namespace {

/// Four lanes of multiply and rotate, so that the sum runs at memory's speed. Not for adversaries: peers prove
/// themselves elsewhere.
class Digest {
 public:
  void add(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::array<std::uint64_t, 4> words{};
    for (; size >= sizeof words; bytes += sizeof words, size -= sizeof words) {
      std::memcpy(words.data(), bytes, sizeof words);
      mix(words);
    }
    words = {size, 0, 0, 0};
    std::memcpy(&words[1], bytes, std::min<std::size_t>(size, 24));
    mix(words);
    if (size > 24) {
      words = {};
      std::memcpy(words.data(), bytes + 24, size - 24);
      mix(words);
    }
  }

  [[nodiscard]] std::string to_string() const {
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes_) all = (all ^ lane) * prime;
    std::string digits(16, '0');
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, all >>= 4U) {
      *digit = "0123456789abcdef"[all & 15U];
    }
    return digits;
  }

 private:
  static constexpr std::uint64_t prime = 0x9E3779B97F4A7C15U;

  void mix(const std::array<std::uint64_t, 4>& words) {
    for (std::size_t i = 0; i < 4; ++i) {
      lanes_[i] = (lanes_[i] ^ words[i]) * prime;
      lanes_[i] = (lanes_[i] << 29U) | (lanes_[i] >> 35U);
    }
  }

  std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

}  // namespace

std::string digest_of(const Dataset& data) {
  Digest digest;
  const auto add = [&](const auto& values) { digest.add(values.data(), values.size() * sizeof(values[0])); };
  std::visit(add, data.inputs);
  std::visit(add, data.targets);
  return std::to_string(data.size()) + " examples of " + data.example_shape.to_string() + " (digest " +
         digest.to_string() + ")";
}

std::string describe_agreement(const Sequential& architecture, const Options& options, const CompileOptions& compile) {
  std::ostringstream text;
  text << "model [";
  for (const LayerInfo& layer : architecture.layers()) {
    text << layer.class_name << layer.output_shape.to_string() << ' ';
  }
  text << "] loss " << name_of(compile.loss) << " optimizer " << name_of(compile.optimizer) << " learning rate "
       << learning_rate_of(compile.optimizer) << " global batch " << options.global_batch_size << " epochs "
       << options.epochs << " steps per epoch " << options.steps_per_epoch << " seed " << options.seed << " replicas "
       << options.replicas << " precision " << to_string(options.precision) << " version " LOCKSTEP_VERSION;
  return text.str();
}

}  // namespace lockstep
