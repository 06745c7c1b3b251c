#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "options/nearest_name.hpp"
#include "options/shared_options.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

Options program_defaults() {
  Options defaults{.epochs = 10, .steps_per_epoch = 70, .global_batch_size = 128};
  defaults.program = "keras_mnist";
  return defaults;
}

Options parse(const std::vector<std::string>& args, const Environment& environment = {}) {
  return parse_options(args, environment, program_defaults());
}

std::string refusal(const std::vector<std::string>& args, const Environment& environment = {}) {
  try {
    (void)parse(args, environment);
  } catch (const UsageError& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

std::string text_of(const std::vector<std::string>& args) {
  try {
    (void)parse(args);
  } catch (const TextRequest& request) {
    return request.text;
  }
  return "";
}

std::string markdown_table() {
  std::string table = "| option | meaning | default |\n| --- | --- | --- |\n";
  Options defaults;
  for (const OptionRow& row : shared_options(defaults)) {
    if (row.for_developers) continue;
    table += fmt::format("| `--{}{}` | {} | {} |\n", row.name, row.metavar.empty() ? "" : " " + row.metavar, row.help,
                         row.shown_default());
  }
  return table;
}

}  // namespace

TEST_CASE("unset options take the program's defaults", "[options]") {
  const Options options = parse({});
  CHECK(options.epochs == 10);
  CHECK(options.steps_per_epoch == 70);
  CHECK(options.global_batch_size == 128);
  CHECK_FALSE(options.learning_rate.has_value());
  CHECK(options.seed == 42);
  CHECK(options.data_dir.empty());
  CHECK(options.model_dir == "model");
  CHECK(options.device == Device::automatic);
  CHECK(options.communication == Communication::automatic);
  CHECK(options.precision == Precision::automatic);
  CHECK_FALSE(options.clip_probabilities);
  CHECK_FALSE(options.allow_tf32);
  CHECK_FALSE(options.deterministic);
  CHECK(options.verbose == 1);
  CHECK(options.program == "keras_mnist");
}

TEST_CASE("every option can be set on the command line and by its variable", "[options]") {
  const std::map<std::string, std::string> given{{"data-dir", "/data/a b"},
                                                 {"model-dir", "/m=1"},
                                                 {"input-scale", "0.5"},
                                                 {"initial-weights", "w.h5"},
                                                 {"epochs", "3"},
                                                 {"steps-per-epoch", "7"},
                                                 {"global-batch-size", "256"},
                                                 {"learning-rate", "1e-2"},
                                                 {"seed", "18446744073709551615"},
                                                 {"precision", "mixed_bfloat16"},
                                                 {"convolutions", "direct"},
                                                 {"clip-probabilities", "true"},
                                                 {"allow-tf32", "true"},
                                                 {"batch-norm-replicas", "4"},
                                                 {"deterministic", "1"},
                                                 {"backup-dir", "/b"},
                                                 {"backup-save-freq", "9"},
                                                 {"resume", "require"},
                                                 {"on-checkpoint-failure", "continue"},
                                                 {"device", "cuda"},
                                                 {"communication", "nccl"},
                                                 {"parallelism", "tensor"},
                                                 {"strategy", "parameter-server"},
                                                 {"ps-placement", "greedy"},
                                                 {"ps-mode", "asynchronous"},
                                                 {"max-staleness", "4"},
                                                 {"replicas-to-aggregate", "2"},
                                                 {"gradient-compression", "bfloat16"},
                                                 {"collective-timeout", "5"},
                                                 {"assumed-hardware", "1,1,1"},
                                                 {"sharding", "aa"},
                                                 {"layout", "nhwc"},
                                                 {"verbose", "2"}};
  std::vector<std::string> args;
  Environment environment;
  Options defaults;
  for (const OptionRow& row : shared_options(defaults)) {
    INFO("a new option needs a value in this test: " << row.name);
    REQUIRE(given.contains(row.name));
    args.push_back("--" + row.name + "=" + given.at(row.name));
    environment[variable_of_option(row.name)] = given.at(row.name);
    CHECK(row.shown_default() != given.at(row.name));
  }
  const Options options = parse(args);
  CHECK(describe_options(options) == describe_options(parse({}, environment)));
  CHECK(options.data_dir == "/data/a b");
  CHECK(options.model_dir == "/m=1");
  CHECK(options.epochs == 3);
  CHECK(options.steps_per_epoch == 7);
  CHECK(options.global_batch_size == 256);
  CHECK(options.learning_rate == 0.01);
  CHECK(options.seed == 18446744073709551615U);
  CHECK(options.device == Device::cuda);
  CHECK(options.communication == Communication::nccl);
  CHECK(options.precision == Precision::mixed_bfloat16);
  CHECK(options.convolutions == Convolutions::direct);
  CHECK(options.batch_norm_replicas == 4);
  CHECK(options.clip_probabilities);
  CHECK(options.allow_tf32);
  CHECK(options.deterministic);
  CHECK(options.verbose == 2);
}

TEST_CASE("the last value wins", "[options]") { CHECK(parse({"--epochs", "3", "--epochs=5"}).epochs == 5); }

TEST_CASE("an empty path, as of a shell variable that is not set, is no path that was left out", "[options]") {
  CHECK(refusal({"--data-dir", ""}) == "--data-dir is '' but must be a path; see --help");
  CHECK(refusal({"--initial-weights", ""}) == "--initial-weights is '' but must be the path of a file; see --help");
  CHECK(refusal({"--backup-dir", ""}) == "--backup-dir is '' but must be the path of a directory; see --help");
}

TEST_CASE("precedence is command line, LOCKSTEP_ variables, template variables, program", "[options]") {
  Environment environment = {{"DATA_DIR", "/t"}, {"MODEL_DIR", "/tm"}, {"BATCH_SIZE", "32"}, {"NUM_TRAIN_EPOCH", "4"}};
  CHECK(parse({}, environment).data_dir == "/t");
  CHECK(parse({}, environment).model_dir == "/tm");
  CHECK(parse({}, environment).global_batch_size == 32);
  CHECK(parse({}, environment).epochs == 4);
  environment["LOCKSTEP_EPOCHS"] = "5";
  environment["LOCKSTEP_DETERMINISTIC"] = "true";
  CHECK(parse({}, environment).epochs == 5);
  CHECK(parse({"--epochs", "6"}, environment).epochs == 6);
  CHECK(parse({}, environment).deterministic);
  CHECK_FALSE(parse({"--deterministic=false"}, environment).deterministic);

  SECTION("an empty variable is unset") {
    environment["LOCKSTEP_EPOCHS"] = "";
    CHECK(parse({}, environment).epochs == 4);
    environment["NUM_TRAIN_EPOCH"] = "";
    CHECK(parse({}, environment).epochs == 10);
  }
  SECTION("an overridden variable is not parsed") {
    environment["LOCKSTEP_EPOCHS"] = "many";
    CHECK(parse({"--epochs", "6"}, environment).epochs == 6);
  }
}

TEST_CASE("an invalid value is named with its source and the allowed values", "[options]") {
  CHECK(refusal({"--learning-rate", "0,001"}) ==
        "--learning-rate is '0,001' but must be a number with a point instead of the comma, greater than 0 and at most "
        "3.4e38; "
        "see --help");
  CHECK(refusal({"--learning-rate", "three"}) ==
        "--learning-rate is 'three' but must be a number, greater than 0 and at most 3.4e38; see --help");
  CHECK(refusal({"--epochs", "0"}) == "--epochs is '0' but must be a whole number of at least 1; see --help");
  CHECK(refusal({"--epochs", "99999999999"}) ==
        "--epochs is '99999999999' but must be a whole number of at least 1 and at most 2147483647; see --help");
  CHECK(refusal({}, {{"BATCH_SIZE", "x"}}) == "BATCH_SIZE is 'x' but must be a whole number of at least 1; see --help");
  CHECK(refusal({}, {{"LOCKSTEP_DEVICE", "GPU"}}) ==
        "LOCKSTEP_DEVICE is 'GPU' but must be auto, cpu or cuda; see --help");
  CHECK(refusal({"--communication", "gloo"}) ==
        "--communication is 'gloo' but must be auto, shared, mpi or nccl; see --help");
  CHECK(refusal({"--communication", "share"}) ==
        "--communication is 'share' but must be auto, shared, mpi or nccl; did you mean shared? See --help");
  CHECK(refusal({"--precision", "bfloat16"}) ==
        "--precision is 'bfloat16' but must be auto, float32 or mixed_bfloat16; did you mean mixed_bfloat16? See "
        "--help");
  CHECK(refusal({"--convolutions", "winograd"}) ==
        "--convolutions is 'winograd' but must be auto or direct; see --help");
  CHECK(refusal({"--precision", "mixed_float16"}) ==
        "--precision is 'mixed_float16' but must be float32 or mixed_bfloat16 (16 bits with float32's range: the loss "
        "needs no scaling); see --help");
  CHECK(refusal({"--gradient-compression", "float16"}) ==
        "--gradient-compression is 'float16' but must be none or bfloat16; did you mean bfloat16? See --help");
  CHECK(refusal({"--verbose", "3"}) == "--verbose is '3' but must be a whole number from 0 to 2; see --help");
  CHECK(refusal({"--model-dir", ""}) == "--model-dir is '' but must be the path of a directory; see --help");
  CHECK(refusal({"--deterministic=maybe"}) == "--deterministic is 'maybe' but must be 1, true, 0 or false; see --help");
}

TEST_CASE("numbers are parsed completely and range-checked", "[options]") {
  const auto wrong = [](const std::string& option, const std::string& value) {
    CAPTURE(option, value);
    CHECK(refusal({option + "=" + value}).starts_with(option + " is '" + value + "' but must be "));
    CHECK(refusal({option, value}).starts_with(option + " is '" + value + "' but must be "));
  };
  for (const char* value : {"0", "-1", "1.5", "1e3", "3 ", " 3", "0x10", "2147483648", "99999999999999999999"}) {
    wrong("--epochs", value);
    wrong("--global-batch-size", value);
  }
  for (const char* value : {"-1", "x", "2147483648"}) {
    wrong("--steps-per-epoch", value);
    wrong("--batch-norm-replicas", value);
  }
  for (const char* value : {"-1", "1.0", "18446744073709551616"}) wrong("--seed", value);
  for (const char* value : {"0", "-0.1", "nan", "inf", "1e400", "1e39", "1e-60", "0.1x", "0,1"}) {
    wrong("--learning-rate", value);
  }
  CHECK(parse({"--steps-per-epoch", "0"}).steps_per_epoch == 0);
  CHECK(parse({"--epochs", "2147483647"}).epochs == 2147483647);
}

TEST_CASE("more replicas than examples are rejected", "[options]") {
  CHECK(parse({"--batch-norm-replicas", "128"}).batch_norm_replicas == 128);
  CHECK(refusal({"--batch-norm-replicas", "129"}) ==
        "--batch-norm-replicas is 129 but must be at most the global batch size, 128; see --help");
}

TEST_CASE("an unknown option is named", "[options]") {
  CHECK(refusal({"--epoch", "3"}) == "there is no option '--epoch'; did you mean --epochs? See --help");
  CHECK(refusal({"--batch-size=3"}) ==
        "there is no option '--batch-size'; did you mean --global-batch-size? See --help");
  CHECK(refusal({"--optimism", "3"}) == "there is no option '--optimism'; see --help");
  CHECK(refusal({"train"}) == "unexpected argument 'train'; see --help");
  CHECK(refusal({"-x"}) == "there is no option '-x'; see --help");
  CHECK(refusal({"--epochs"}) == "--epochs needs a value; see --help");
  CHECK(refusal({"--epochs", "--seed", "3"}) == "--epochs needs a value; see --help");
}

TEST_CASE("help fits a screen and shows the program's defaults", "[options]") {
  const std::string help = text_of({"--help"});
  CHECK(text_of({"-h"}) == help);
  CHECK(text_of({"--epochs", "nonsense", "--help"}) == help);
  std::istringstream lines(help);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
  }
  CHECK(count >= 24);
  CHECK(count <= 50);
  for (const auto& [name, value] : describe_options(program_defaults())) {
    std::string option = "--" + name;
    for (char& c : option) c = c == '_' ? '-' : c;
    CAPTURE(option);
    CHECK((option == "--program" || help.find(option) != std::string::npos));
  }
  const auto line_of = [&help](const std::string& option) {
    const std::size_t at = help.find("  " + option);
    return help.substr(at, help.find('\n', at) - at);
  };
  CHECK(line_of("--epochs").ends_with("[10]"));
  CHECK(line_of("--steps-per-epoch").ends_with("[70]"));
  CHECK(line_of("--data-dir").ends_with("[synthetic data]"));
  CHECK(help.find("NUM_TRAIN_EPOCH") != std::string::npos);
}

TEST_CASE("the version names program and library", "[options]") {
  CHECK(text_of({"--version"}) == "keras_mnist (Lockstep " LOCKSTEP_VERSION ")\n");
}

TEST_CASE("the collective timeout is 0 or a number of seconds", "[options]") {
  CHECK(parse({}).collective_timeout == 600);
  CHECK(parse({"--collective-timeout", "0.25"}).collective_timeout == 0.25);
  CHECK(parse({"--collective-timeout", "0"}).collective_timeout == 0);
  for (const char* wrong : {"soon", "-1", "10s", "inf", "nan", " 5", "1e999"}) {
    CAPTURE(wrong);
    CHECK_FALSE(refusal({"--collective-timeout", wrong}).empty());
  }
}

TEST_CASE("options for developers are recorded where they are given, and not in the help", "[options]") {
  const Options options = parse({"--sharding", "eera", "--assumed-hardware", "1,1e3,1e12"});
  CHECK(options.sharding == "eera");
  CHECK(options.assumed_hardware == "1,1e3,1e12");
  CHECK(std::get<std::string>(describe_options(options).at("sharding")) == "eera");
  CHECK_FALSE(describe_options(parse({})).contains("sharding"));
  CHECK(text_of({"--help"}).find("--sharding") == std::string::npos);
}

TEST_CASE("options can be serialized", "[options]") {
  const NamedValues record = describe_options(parse({"--device", "cpu", "--seed", "7"}));
  CHECK(std::get<std::string>(record.at("device")) == "cpu");
  CHECK(std::get<std::uint64_t>(record.at("seed")) == 7);
  CHECK(std::get<std::int64_t>(record.at("epochs")) == 10);
  CHECK(std::get<bool>(record.at("deterministic")) == false);
  CHECK(std::get<bool>(record.at("allow_tf32")) == false);
  CHECK(std::isnan(std::get<double>(record.at("learning_rate"))));
}

TEST_CASE("bytes are scaled by the option, else by the model", "[options]") {
  CHECK_FALSE(parse({}).input_scale.has_value());
  CHECK(parse({"--input-scale", "0.5"}).input_scale == 0.5);
  CHECK(parse({"--input-scale", "1/255"}).input_scale == 1.0 / 255);
  CHECK(parse({}, {{"LOCKSTEP_INPUT_SCALE", "1"}}).input_scale == 1.0);
  for (const char* wrong : {"0", "-1", "1/0", "1/", "inf"}) {
    CHECK(refusal({"--input-scale", wrong}).find("--input-scale is '" + std::string(wrong)) != std::string::npos);
  }
  CHECK(std::isnan(std::get<double>(describe_options(parse({})).at("input_scale"))));
}

TEST_CASE("a program's own options are recorded", "[options]") {
  std::string said;
  const ProgramOption own{
      .name = "hidden-units", .help = "of the model", .set = [&](const OptionValue& given) { said = given.value; }};
  Options options = parse_options(std::vector<std::string>{"--hidden-units", "7"}, {}, program_defaults(), {&own, 1});
  CHECK(said == "7");
  CHECK(options.program_options == std::map<std::string, std::string>{{"hidden-units", "7"}});
  CHECK(std::get<std::int64_t>(describe_options(options).at("hidden_units")) == 7);
  options = parse_options({}, {{"LOCKSTEP_HIDDEN_UNITS", "8"}}, program_defaults(), {&own, 1});
  CHECK(options.program_options.at("hidden-units") == "8");
  CHECK(parse({}).program_options.empty());
}

TEST_CASE("a program that does not train has no training options", "[options]") {
  const ProgramPurpose purpose{.sentence = "Tells what a model is worth", .trains = false};
  const auto run = [&](const std::vector<std::string>& args, const Environment& environment = {}) {
    return parse_options(args, environment, program_defaults(), {}, purpose);
  };
  CHECK(run({"--global-batch-size", "8", "--input-scale", "1"}).global_batch_size == 8);
  for (const char* option : {"--epochs", "--model-dir", "--learning-rate", "--resume", "--backup-dir"}) {
    CHECK_THROWS_AS(run({option, "1"}), UsageError);
  }
  CHECK(run({}, {{"NUM_TRAIN_EPOCH", "many"}, {"LOCKSTEP_RESUME", "perhaps"}}).resume == Resume::automatic);
  try {
    (void)run({"--help"});
    FAIL("no help");
  } catch (const TextRequest& help) {
    CHECK(help.text.starts_with("Tells what a model is worth: mpirun -np 2 keras_mnist"));
    CHECK(help.text.find("\n  --epochs") == std::string::npos);
    CHECK(help.text.find("--precision") != std::string::npos);
  }
}

TEST_CASE("a variable that nothing reads is reported", "[options]") {
  Options options;
  const std::vector<std::string> own{"hidden-units"};
  const auto find = [&](const std::string& variable, const std::string& value = "1") {
    const auto found = find_unknown_variables({{variable, value}}, shared_options(options), own);
    return found.empty() ? std::string() : found.front().name + found.front().hint;
  };
  CHECK(find("LOCKSTEP_EPOCH") == "LOCKSTEP_EPOCH; did you mean LOCKSTEP_EPOCHS?");
  CHECK(find("LOCKSTEP_HIDEN_UNITS") == "LOCKSTEP_HIDEN_UNITS; did you mean LOCKSTEP_HIDDEN_UNITS?");
  CHECK(find("LOCKSTEP_DATA") == "LOCKSTEP_DATA; did you mean LOCKSTEP_DATA_DIR?");
  CHECK(find("LOCKSTEP_LR") == "LOCKSTEP_LR; did you mean LOCKSTEP_LEARNING_RATE?");
  CHECK(find("LOCKSTEP_BATCH_SIZE") == "LOCKSTEP_BATCH_SIZE; did you mean LOCKSTEP_GLOBAL_BATCH_SIZE?");
  CHECK(find("LOCKSTEP_MODEL_DIRECTORY") == "LOCKSTEP_MODEL_DIRECTORY; did you mean LOCKSTEP_MODEL_DIR?");
  CHECK(find("LOCKSTEPS_EPOCHS") == "LOCKSTEPS_EPOCHS; did you mean LOCKSTEP_EPOCHS?");
  CHECK(find("LOCKSTEP_epochs") == "LOCKSTEP_epochs; did you mean LOCKSTEP_EPOCHS?");
  CHECK(find("lockstep_epochs") == "lockstep_epochs; did you mean LOCKSTEP_EPOCHS?");
  CHECK(find("NUM_TRAIN_EPOCHS") == "NUM_TRAIN_EPOCHS; did you mean NUM_TRAIN_EPOCH?");
  CHECK(find("BATCHSIZE") == "BATCHSIZE; did you mean BATCH_SIZE?");
  CHECK(find("DATA_DIRS") == "DATA_DIRS; did you mean DATA_DIR?");
  CHECK(find("NUM_TRAIN_EPOCHS", "").empty());
  CHECK(find("TF_CONFG", "{}") == "TF_CONFG; did you mean TF_CONFIG?");
  CHECK(find("tf_config", "{}") == "tf_config; did you mean TF_CONFIG?");
  CHECK(find("CLUSTERCONFIG", "{}") == "CLUSTERCONFIG; did you mean CLUSTER_CONFIG?");
  const Environment both{{"BATCHSIZE", "1"}, {"BATCH_SIZE", "2"}};
  CHECK(find_unknown_variables(both, shared_options(options), own).empty());
  CHECK(find_unknown_variables({{"BATCHSIZE", "1"}}, shared_options(options), own).front().is_of_other);
  CHECK_FALSE(find_unknown_variables({{"LOCKSTEPS_SEED", "1"}}, shared_options(options), own).front().is_of_other);
  for (const char* unknown : {"LOCKSTEP_PORT", "LOCKSTEP_"}) {
    CAPTURE(unknown);
    CHECK(find(unknown) == unknown);
  }
  for (const OptionRow& row : shared_options(options)) CHECK(find(variable_of_option(row.name)).empty());
  // Variables with other readers.
  for (const char* other : {"LOCKSTEP_HIDDEN_UNITS", "LOCKSTEP_MNIST_DIR", "LOCKSTEP_JOB_TOKEN", "LOCKSTEP_JOB_NAME",
                            "LOCKSTEP_CONTROL_FD", "LOCKSTEP_JOB_ID", "LOCKSTEP_LAUNCH_ID", "LOCKSTEP_GENERATION",
                            "LOCKSTEP_MAX_RESTARTS", "LOCKSTEP_TEST_FAULT", "EPOCH"}) {
    CAPTURE(other);
    CHECK(find(other).empty());
  }
  CHECK(find("LOCKSTEP_TEST_EPOCHS") == "LOCKSTEP_TEST_EPOCHS");
  // What Kubernetes sets for the services `lockstep` and `lockstep-job`.
  CHECK(find("LOCKSTEP_SERVICE_HOST", "10.0.0.1").empty());
  CHECK(find("LOCKSTEP_JOB_SERVICE_PORT_WORLD", "2222").empty());
  CHECK(find("LOCKSTEP_PORT", "tcp://10.0.0.1:2222").empty());
  CHECK(find("LOCKSTEP_PORT_2222_TCP", "tcp://10.0.0.1:2222").empty());
  CHECK(find("LOCKSTEP_PORT_2222_TCP_ADDR", "10.0.0.1").empty());
}

TEST_CASE("the nearest name is found", "[options]") {
  const std::vector<std::string> names{"epochs", "seed", "model-dir", "backup-dir", "global-batch-size"};
  CHECK(nearest_name("epoch", names) == "epochs");
  CHECK(nearest_name("eopchs", names) == "epochs");
  CHECK(nearest_name("sed", names) == "seed");
  CHECK(nearest_name("se", names).empty());
  CHECK(nearest_name("batch-size", names) == "global-batch-size");
  CHECK(nearest_name("model", names) == "model-dir");
  CHECK(nearest_name("back", names) == "backup-dir");
  CHECK(nearest_name("rate", names).empty());
  CHECK(nearest_name("", names).empty());
  CHECK(nearest_name("lr", names).empty());
  const std::vector<std::string> others{"train", "evaluate", "learning-rate"};
  CHECK(nearest_name("lr", others) == "learning-rate");
  CHECK(nearest_name("fit", others) == "train");
  CHECK(nearest_name("eval", others) == "evaluate");
}

TEST_CASE("README shows the table of options", "[options]") {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  const std::string begin = "<!-- options -->\n";
  const std::size_t at = readme.find(begin);
  REQUIRE(at != std::string::npos);
  const std::size_t end = readme.find("<!-- /options -->", at);
  CHECK(readme.substr(at + begin.size(), end - at - begin.size()) == markdown_table());
}
