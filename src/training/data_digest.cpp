// See data_digest.hpp.
#include "training/data_digest.hpp"

#include "core/digest.hpp"
#include "training/options_parser.hpp"

#include <sstream>
#include <string>
#include <variant>

namespace lockstep {

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
