// The program. This file alone is compiled for any x86-64 processor, so that an older one is told
// in a line what it lacks.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "diff/cli/command.h"

namespace {

#if defined(__x86_64__) && defined(SHARDPROOF_NEEDS_V3)
// Before any other code of ours runs, static constructors included.
__attribute__((constructor(101))) void check_processor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3")) return;
  std::fputs(
      "shardproof: this processor lacks AVX2; configure with -DSHARDPROOF_ARCH=x86-64 and build "
      "again\n",
      stderr);
  std::exit(2);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  using namespace shardproof::cli;
  // Tensors come and go with every launch: memory that is kept is not faulted in again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  CLI::App program(
      "Is a data-parallel training kernel right? Compares a device with an exact reference.",
      "shardproof");
  program.set_version_flag("--version", SHARDPROOF_VERSION);
  program.require_subcommand(1);
  int exit_code = 0;
  add_signoff(program, exit_code);
  add_run(program, exit_code);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return program.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + "; see shardproof --help", bad_input);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: ask for fewer or smaller images", no_verdict);
  } catch (const std::exception& error) {
    return fail(error.what(), no_verdict);
  }
  return exit_code;
}
