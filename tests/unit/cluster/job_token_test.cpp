// Sources of the job token, and authentication with it.
#include "cluster/config/job_token.hpp"

#include "cluster/net/socket.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

using namespace lockstep;

TEST_CASE("job tokens come from the environment or a file and authenticate") {
  CHECK_FALSE(JobToken::load({}, "").is_set());
  const JobToken token = JobToken::load({{"LOCKSTEP_JOB_TOKEN", "abc"}}, "");
  REQUIRE(token.is_set());
  // Expected value: printf hello | openssl dgst -sha256 -hmac abc
  const std::string proof = token.sign("hello");
  CHECK(proof ==
        "\xf3\x16\x6a\x3a\x40\x45\x99\xd2\x04\x6e\xd2\xaa\xe4\x79\xb3\x7d"
        "\x54\xb5\x1d\x2e\x85\x25\x9c\x9e\x31\x40\x42\x75\x3b\xe7\xd8\x13");
  CHECK(token.verify(proof, "hello"));
  CHECK_FALSE(token.verify(proof, "hellO"));
  CHECK_FALSE(token.verify(proof.substr(0, 31), "hello"));
  CHECK_FALSE(token.verify("", "hello"));
  CHECK_FALSE(JobToken("abd").verify(proof, "hello"));
  CHECK(random_bytes(32) != random_bytes(32));
  std::array<char, 32> path{"/tmp/lockstep_token_XXXXXX"};
  const Socket file(mkstemp(path.data()));
  const std::string name = path.data();
  CHECK_THROWS_AS(JobToken::load({}, name), UsageError);
  std::ofstream(name) << "abc\r\nsecond line\n";
  CHECK(JobToken::load({{"LOCKSTEP_JOB_TOKEN", "other"}}, name).verify(proof, "hello"));
  (void)unlink(name.c_str());
  CHECK_THROWS_AS(JobToken::load({}, name), UsageError);
  REQUIRE(mkfifo(name.c_str(), 0600) == 0);
  CHECK_THROWS_AS(JobToken::load({}, name), IoError);  // does not wait for a writer
  (void)unlink(name.c_str());
}
