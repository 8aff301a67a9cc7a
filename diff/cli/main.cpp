// The program. This file alone is compiled for any x86-64 processor, so that an older one is told
// in a line what it lacks.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>

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
  add_check(program, exit_code);
  add_mutants(program, exit_code);
  add_replay(program, exit_code);
  add_run(program, exit_code);
  add_separable(program, exit_code);
  const std::string command = argc > 1 ? argv[1] : "";
  const auto commands = program.get_subcommands({});
  const bool known = std::any_of(commands.begin(), commands.end(),
                                 [&](const CLI::App* each) { return each->get_name() == command; });
  if (argc > 1 && !command.starts_with("-") && !known) {
    return fail("\"" + command + "\" is no command; see shardproof --help", bad_input);
  }
  // Of the command that was being read, if any.
  const auto help = [&] {
    const auto read = program.get_subcommands();
    return "; see shardproof " + (read.empty() ? "" : read[0]->get_name() + " ") + "--help";
  };
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return program.exit(asked);
  } catch (const CLI::ExtrasError&) {
    std::string unexpected;
    for (const std::string& word : program.remaining(true)) unexpected += " " + word;
    return fail("not expected:" + unexpected + help(), bad_input);
  } catch (const CLI::ParseError& error) {
    return fail(error.what() + help(), bad_input);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: ask for fewer or smaller images", no_verdict);
  } catch (const std::system_error& error) {
    return fail(std::string("no thread could be started: ") + error.what() +
                    "; raise the limits (ulimit -u, ulimit -v) or give fewer --threads",
                no_verdict);
  } catch (const std::exception& error) {
    return fail(error.what(), no_verdict);
  }
  return exit_code;
}
