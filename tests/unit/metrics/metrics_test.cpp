// Metrics against hand-computed values, and which losses and outputs they accept.
#include "metrics/metric_registry.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Outputs = std::vector<std::vector<float>>;

/// The metric over all examples. Targets are class indices or vectors. With `weights` it is a weighted metric.
template <typename Targets>
double value_of(const Metric& metric, const Outputs& outputs, const Targets& targets,
                const std::vector<float>& weights = {}) {
  std::vector<Metric> metrics{metric};
  complete(metrics, static_cast<std::int64_t>(outputs.front().size()));
  const MetricLists lists = weights.empty() ? MetricLists{metrics} : MetricLists{{}, metrics};
  std::vector<double> sums(num_sums(lists));
  with_metric_rule(metrics.front(), [&](const auto& rule) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto count = static_cast<std::int64_t>(outputs[i].size());
      const float weight = weights.empty() ? 1.0F : weights[i];
      if constexpr (std::is_same_v<Targets, std::vector<int>>) {
        rule(outputs[i].data(), count, ClassTarget<std::int64_t>{targets[i]}, weight, sums.data());
      } else {
        rule(outputs[i].data(), count, DenseTarget<std::int64_t>{targets[i].data()}, weight, sums.data());
      }
      if (!weights.empty()) sums.back() += weight;
    }
  });
  double found = -1;
  visit_metric_values(lists, sums, static_cast<double>(outputs.size()), [&](std::string_view name, double value) {
    CHECK(name == keras_name(metric));
    found = value;
  });
  return found;
}

}  // namespace

TEST_CASE("accuracy takes the first of equally large outputs") {
  const Outputs outputs{{0.1F, 0.7F, 0.2F}, {3, 3, 1}, {1, 3, 3}, {-1, -2, -3}};
  CHECK(value_of(accuracy, outputs, std::vector<int>{1, 0, 2, 0}) == 0.75);
  CHECK(value_of(accuracy, outputs, Outputs{{0, 1, 0}, {0, 0.5F, 0.5F}, {0.2F, 0.4F, 0.4F}, {1, 0, 0}}) == 0.75);
}

TEST_CASE("accuracy of one output is Keras' binary accuracy") {
  const Outputs outputs{{0.6F}, {0.4F}, {0.5F}, {31}, {std::nanf("")}};
  CHECK(value_of(accuracy, outputs, Outputs{{1}, {1}, {0}, {1}, {1}}) == 0.6);
  CHECK(value_of(accuracy, outputs, Outputs{{0.6F}, {2}, {0.5F}, {31}, {1}}) == 0);  // equal to 0 or 1, or wrong
  CHECK(value_of(accuracy, outputs, std::vector<int>{1, 0, 1, 1, 1}) == 0.6);
}

TEST_CASE("a metric's numbers are checked") {
  for (const int k : {0, -3}) {
    const std::vector<Metric> metrics{metrics::SparseTopKCategoricalAccuracy({.k = k})};
    require_words(message_of<UsageError>([&] { check({metrics}, SparseCategoricalCrossentropy(), 1); }),
                  {"sparse_top_k_categorical_accuracy's k is " + std::to_string(k), "at least 1"});
  }
  for (const double threshold : {0.0, 7.0, std::nan("")}) {
    CAPTURE(threshold);
    const std::vector<Metric> metrics{metrics::F1Score({.threshold = threshold})};
    require_words(message_of<UsageError>([&] { check({metrics}, CategoricalCrossentropy(), 1); }),
                  {"f1_score", "threshold", "it must be above 0 and at most 1"});
  }
  for (const double beta : {0.0, -1.0, std::nan("")}) {
    CAPTURE(beta);
    const std::vector<Metric> metrics{metrics::FBetaScore({.beta = beta})};
    require_words(message_of<UsageError>([&] { check({metrics}, CategoricalCrossentropy(), 1); }),
                  {"fbeta_score", "beta", "it must be above 0"});
  }
}

TEST_CASE("top-k accuracy counts outputs above the target's, like TensorFlow's in_top_k") {
  const Outputs outputs{{5, 4, 3, 2, 1, 0}, {0, 1, 1, 1, 2, 3}};
  const auto sparse = [&](int k, int first, int second) {
    return value_of(metrics::SparseTopKCategoricalAccuracy({.k = k}), outputs, std::vector<int>{first, second});
  };
  CHECK(sparse(5, 4, 0) == 0.5);  // 4 and 5 outputs are larger than the targets'
  CHECK(sparse(1, 0, 5) == 1);
  CHECK(sparse(2, 1, 3) == 0.5);
  CHECK(sparse(3, 3, 1) == 0.5);  // equal outputs do not count as larger
  CHECK(sparse(6, 5, 0) == 1);
  CHECK(sparse(100, 5, 0) == 1);
  CHECK(value_of(metrics::TopKCategoricalAccuracy({.k = 2}), outputs,
                 Outputs{{0, 0.9F, 0.1F, 0, 0, 0}, {0, 0, 0, 1, 0, 0}}) == 0.5);
  CHECK(metrics::TopKCategoricalAccuracy().k == 5);
  CHECK(metrics::SparseTopKCategoricalAccuracy().k == 5);
}

TEST_CASE("an output that is not finite is in no top k") {
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const int expected : {0, 1}) {
      CHECK(value_of(metrics::SparseTopKCategoricalAccuracy(), Outputs{{1, wrong, 2}}, std::vector<int>{expected}) ==
            0);
    }
  }
}

TEST_CASE("mean errors are means over examples and outputs") {
  const Outputs outputs{{1, 2}, {-1, 0.5F}, {4, 0}};
  const Outputs targets{{0, 4}, {1, 0.5F}, {1, 1}};  // differences 1, 2, 2, 0, 3, 1
  CHECK(value_of(metrics::MeanAbsoluteError(), outputs, targets) == 1.5);
  CHECK(value_of(metrics::MeanSquaredError(), outputs, targets) == Approx(19.0 / 6));
  CHECK(value_of(metrics::RootMeanSquaredError(), outputs, targets) == Approx(std::sqrt(19.0 / 6)));
}

TEST_CASE("the sums of metrics are consecutive, and without examples every metric is 0") {
  const std::vector<Metric> several{metrics::MeanAbsoluteError(), accuracy, metrics::RootMeanSquaredError()};
  REQUIRE(num_sums(MetricLists{several}) == 3);
  std::map<std::string, double> values;
  const auto note = [&](std::string_view name, double value) { values[std::string(name)] = value; };
  visit_metric_values(MetricLists{several}, std::vector<double>{2, 1, 16}, 4, note);
  CHECK(values == std::map<std::string, double>{
                      {"mean_absolute_error", 0.5}, {"accuracy", 0.25}, {"root_mean_squared_error", 2}});
  visit_metric_values(MetricLists{several}, {}, 0, note);
  for (const auto& [name, value] : values) CHECK(value == 0);
}

TEST_CASE("precision, recall and F1 count true and false positives") {
  const Outputs outputs{{0.9F, 0.6F, 0.2F}, {0.7F, 0.1F, 0.8F}};
  const Outputs targets{{1, 0, 1}, {1, 0, 1}};  // 3 true positives, 1 false positive, 1 false negative
  CHECK(value_of(metrics::Precision(), outputs, targets) == 0.75);
  CHECK(value_of(metrics::Recall(), outputs, targets) == 0.75);
  CHECK(value_of(metrics::Precision(), outputs, targets, {1, 3}) == Approx(7.0 / 8));
  CHECK(value_of(metrics::Recall(), outputs, targets, {1, 3}) == Approx(7.0 / 8));
  CHECK(value_of(metrics::Precision({.thresholds = 1}), outputs, targets) == 0);
  CHECK(value_of(metrics::BinaryAccuracy(), outputs, targets) == Approx(4.0 / 6));
  using metrics::Average;
  CHECK(value_of(metrics::F1Score({.average = Average::micro, .threshold = 0.5}), outputs, targets) ==
        Approx(0.75).epsilon(1e-6));
  CHECK(value_of(metrics::F1Score({.average = Average::macro, .threshold = 0.5}), outputs, targets) ==
        Approx((1 + 0 + 2.0 / 3) / 3).epsilon(1e-6));
  CHECK(value_of(metrics::F1Score({.average = Average::weighted, .threshold = 0.5}), outputs, targets) ==
        Approx((1 + 2.0 / 3) / 2).epsilon(1e-6));
  CHECK(value_of(metrics::F1Score({.average = Average::micro}), outputs, targets) ==
        Approx(2 * 1 * 0.5 / 1.5).epsilon(1e-6));  // without a threshold, the largest outputs
  CHECK(value_of(metrics::FBetaScore({.average = Average::micro, .beta = 2}), outputs, targets) ==
        Approx(5 * 1 * 0.5 / (4 * 1 + 0.5)).epsilon(1e-6));
  CHECK(value_of(metrics::FBetaScore({.average = Average::macro}), outputs, targets) ==
        value_of(metrics::F1Score({.average = Average::macro}), outputs, targets));
}

TEST_CASE("true and false positives and negatives are counted, not averaged") {
  const Outputs outputs{{0.9F, 0.6F, 0.2F}, {0.7F, 0.1F, 0.8F}};
  const Outputs targets{{1, 0, 1}, {1, 0, 1}};
  CHECK(value_of(metrics::TruePositives(), outputs, targets) == 3);
  CHECK(value_of(metrics::TrueNegatives(), outputs, targets) == 1);
  CHECK(value_of(metrics::FalsePositives(), outputs, targets) == 1);
  CHECK(value_of(metrics::FalseNegatives(), outputs, targets) == 1);
  CHECK(value_of(metrics::TruePositives({.thresholds = 0.75}), outputs, targets) == 2);
  CHECK(value_of(metrics::FalseNegatives(), outputs, targets, {2, 5}) == 2);
  CHECK(is_upward(metrics::TrueNegatives()));
  CHECK_FALSE(is_upward(metrics::FalseNegatives()));
}

TEST_CASE("intersection over union is the mean over the classes that occur") {
  const Outputs outputs{{3, 1, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};  // predicted: 0, 1, 1, 2
  const std::vector<int> classes{0, 0, 1, 2};
  CHECK(value_of(metrics::MeanIoU({.num_classes = 4}), outputs, classes) == Approx((0.5 + 0.5 + 1) / 3));
  CHECK(value_of(metrics::MeanIoU({.num_classes = 2}), outputs, classes) == Approx(0.5));  // without class 2
  CHECK(value_of(metrics::IoU({.num_classes = 4, .target_class_ids = {1, 2}}), outputs, classes) == Approx(0.75));
  CHECK(value_of(metrics::IoU({.num_classes = 4, .target_class_ids = {3}}), outputs, classes) == 0);
  const Outputs one_hot{{1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  CHECK(value_of(metrics::OneHotMeanIoU({.num_classes = 4}), outputs, one_hot) == Approx(2.0 / 3));
  CHECK(value_of(metrics::OneHotIoU({.num_classes = 4, .target_class_ids = {2}}), outputs, one_hot) == Approx(1));
  const Outputs shares{{0.5F}, {0.4F}, {0.9F}, {0.1F}};  // 1, 0, 1, 0
  const Outputs bits{{1}, {0}, {0}, {0}};
  CHECK(value_of(metrics::BinaryIoU(), shares, bits) == Approx((2.0 / 3 + 0.5) / 2));
  CHECK(value_of(metrics::BinaryIoU({.target_class_ids = {1}, .threshold = 0.6}), shares, bits) == 0);
}

TEST_CASE("wrong classes of intersection over union are refused") {
  const auto refusal = [](const Metric& metric) {
    return message_of<UsageError>([&] {
      std::vector<Metric> list{metric};
      complete(list, 3);
      check({list}, SparseCategoricalCrossentropy(), 1);
    });
  };
  require_words(refusal(metrics::MeanIoU()), {"mean_io_u's num_classes is 0", "between 1 and"});
  require_words(refusal(metrics::IoU({.num_classes = 3})), {"io_u's target_class_ids are empty"});
  require_words(refusal(metrics::IoU({.num_classes = 3, .target_class_ids = {0, 3}})),
                {"io_u has the target class 3, but its classes are 0 to 2"});
  const std::vector<Metric> weighted{metrics::MeanIoU({.num_classes = 3})};
  require_words(message_of<UsageError>([&] {
                  check({{}, weighted}, SparseCategoricalCrossentropy(), 1);
                }),
                {"mean_io_u cannot be a weighted metric"});
}

TEST_CASE("AUC is the area under ROC or precision over recall") {
  const Outputs outputs{{0.1F}, {0.4F}, {0.35F}, {0.8F}};
  const Outputs targets{{0}, {0}, {1}, {1}};  // of four pairs of a positive and a negative, three are ordered
  using metrics::Summation;
  CHECK(value_of(metrics::AUC(), outputs, targets) == Approx(0.75));
  CHECK(value_of(metrics::AUC({.summation_method = Summation::majoring}), outputs, targets) == Approx(0.75));
  CHECK(value_of(metrics::AUC({.num_thresholds = 3}), outputs, targets) == Approx(0.75));  // Keras' example
  CHECK(value_of(metrics::AUC({.num_thresholds = 3}), Outputs{{0}, {0.5F}, {0.3F}, {0.9F}}, targets, {1, 0, 0, 1}) ==
        Approx(1));
  CHECK(value_of(metrics::AUC({.curve = metrics::Curve::PR}), Outputs{{0.2F}, {0.9F}}, Outputs{{0}, {1}}) == Approx(1));
  CHECK(value_of(metrics::AUC({.from_logits = true}), Outputs{{-2}, {-0.4F}, {-0.6F}, {1}}, targets) == Approx(0.75));
}

TEST_CASE("weighted metrics weigh their examples and have names of their own") {
  const Outputs outputs{{1}, {3}};
  const Outputs targets{{0}, {1}};
  CHECK(value_of(metrics::MeanAbsoluteError(), outputs, targets, {1, 3}) == Approx(7.0 / 4));
  CHECK(value_of(metrics::RootMeanSquaredError(), outputs, targets, {1, 3}) == Approx(std::sqrt(13.0 / 4)));
  CHECK(value_of(metrics::MeanAbsoluteError(), outputs, targets, {0, 0}) == 0);
  CHECK(value_of(metrics::MeanAbsoluteError(), outputs, targets, {1, -3}) == Approx(5.0 / 2));
  CHECK(value_of(metrics::RootMeanSquaredError(), outputs, targets, {1, -3}) == Approx(std::sqrt(11.0 / 2)));
  CHECK(value_of(metrics::RootMeanSquaredError(), outputs, targets, {1, -1}) == 0);
  CHECK(value_of(metrics::Precision(), Outputs{{1}, {1}, {1}}, Outputs{{1}, {0}, {0}}, {-3, 1, 1}) == Approx(3));
  CHECK(value_of(metrics::Precision(), Outputs{{1}, {1}, {0}}, Outputs{{1}, {0}, {0}}, {1, 1, -2}) == Approx(0.5));
  const std::vector<Metric> both{metrics::MeanAbsoluteError()};
  std::vector<std::string> names;
  visit_metric_values(MetricLists{both, both}, std::vector<double>{1, 1, 1}, 1,
                      [&](std::string_view name, double) { names.emplace_back(name); });
  CHECK(names == std::vector<std::string>{"mean_absolute_error", "weighted_mean_absolute_error"});
}

TEST_CASE("a metric's name is Keras', and determines whether larger is better") {
  CHECK(keras_name(accuracy) == "accuracy");
  CHECK(is_upward_metric("accuracy") == true);
  CHECK(is_upward_metric("top_k_categorical_accuracy") == true);
  CHECK(is_upward_metric("root_mean_squared_error") == false);
  CHECK(!is_upward_metric("loss"));
  CHECK(is_upward_metric("mae") == false);
  CHECK(is_upward_metric("precision_1") == true);
  CHECK(!is_upward_metric("precision_x"));
  CHECK(keras_name(Metric(metrics::Precision{.name = "hits"})) == "hits");
}

TEST_CASE("metrics that do not fit loss or output are refused by name") {
  const Loss classes = SparseCategoricalCrossentropy();
  const Loss dense = MeanSquaredError();
  const auto check_all = [](const std::vector<Metric>& given, const Loss& loss, std::size_t output_rank) {
    check({given}, loss, output_rank);
  };
  const auto refusal = [&](const std::vector<Metric>& given, const Loss& loss, std::size_t output_rank) {
    return message_of<UsageError>([&] { check_all(given, loss, output_rank); });
  };
  CHECK_NOTHROW(check_all({accuracy, metrics::SparseTopKCategoricalAccuracy()}, classes, 1));
  CHECK_NOTHROW(check_all({accuracy, metrics::TopKCategoricalAccuracy(), metrics::MeanAbsoluteError()}, dense, 1));
  CHECK_NOTHROW(check_all({metrics::RootMeanSquaredError(), accuracy, metrics::TopKCategoricalAccuracy()}, dense, 3));
  CHECK_NOTHROW(check_all({accuracy, metrics::SparseTopKCategoricalAccuracy()}, classes, 3));
  CHECK(refusal({metrics::MeanAbsoluteError()}, classes, 1) ==
        "the metric mean_absolute_error needs targets that are of the output's shape, but those of the loss "
        "sparse_categorical_crossentropy are class indices; choose another metric or another loss");
  CHECK(refusal({metrics::SparseTopKCategoricalAccuracy()}, dense, 1) ==
        "the metric sparse_top_k_categorical_accuracy needs targets that are class indices, but those of the loss "
        "mean_squared_error are of the output's shape; choose another metric or another loss");
  CHECK(refusal({metrics::F1Score()}, dense, 3) ==
        "the metric f1_score needs one vector of classes per example; end the model with Flatten() and Dense(classes), "
        "or choose another metric");
  CHECK(refusal({metrics::MeanSquaredError{.name = "loss"}}, dense, 1) ==
        "a metric has the name 'loss', like the loss; give it another name");
  CHECK(refusal({accuracy, accuracy}, classes, 1) ==
        "the metric accuracy is given twice; give it once, or give one another name");
  const std::vector<Metric> plain{metrics::MeanAbsoluteError{.name = "a"},
                                  metrics::MeanSquaredError{.name = "weighted_a"}};
  const std::vector<Metric> weighted{metrics::MeanSquaredError{.name = "a"}};
  CHECK(message_of<UsageError>([&] {
          check({plain, weighted}, dense, 1);
        }) == "the metric weighted_a is given twice; give it once, or give one another name");
}
