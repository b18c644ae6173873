// The parts of `isthmus kv` that work on a model and a file: writing the KV of a prompt to a file, and taking
// such a file into the flash tier.
#pragma once

#include <string>
#include <vector>

#include "apps/isthmus/model_args.h"
#include "store/kv_tier.h"

namespace isthmus::cli {

struct KvArgs {
  std::string action;
  std::vector<std::string> items;  // what the action works on
  ModelArgs model;
  std::string prompt_file;
  std::string out;
  std::string size = "4GB";
  bool system = false;
  bool raw = false;
  bool all = false;
};

/// Reads a prompt and writes the KV of its whole blocks.
Status export_kv(KvArgs args, const Context& context);
/// Checks a whole file, then takes all of its records into the tier.
Status import_kv(const KvArgs& args, const Context& context);

/// Opens the tier in its standard folder, with the quota of --size.
Result<std::unique_ptr<KvTier>> open_kv_tier(const KvArgs& args);

}  // namespace isthmus::cli
