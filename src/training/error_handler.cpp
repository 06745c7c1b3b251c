// See error_handler.hpp.
#include "training/error_handler.hpp"

#include "cluster/world/world.hpp"

#include <lockstep/core/error.hpp>

#include <csignal>
#include <exception>
#include <new>
#include <string>

namespace lockstep {

namespace {

constexpr auto internal = static_cast<int>(ExitCode::internal);

[[noreturn]] void end_with_current_exception() noexcept {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    World::end_with_error(internal, "out of memory; give the worker more memory, or use a smaller --global-batch-size");
  } catch (const std::exception& error) {
    World::end_with_error(internal, std::string("unexpected error: ") + error.what());
  } catch (...) {
  }
  World::end_with_error(internal, "std::terminate was called without an exception");
}

}  // namespace

void install_error_handler() noexcept {
  std::set_terminate(end_with_current_exception);
  // A write beyond the file size limit (ulimit -f) then fails with EFBIG instead of killing the process.
  (void)std::signal(SIGXFSZ, SIG_IGN);  // cannot fail for this signal
}

}  // namespace lockstep
