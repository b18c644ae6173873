#include "kv/bit_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace isthmus {
namespace {

constexpr double kNoPlan = std::numeric_limits<double>::infinity();

/// Least losses of the parts so far for each number of bits spent, and what each part chose to get there.
class PlanTable {
 public:
  PlanTable(size_t parts, size_t budget)
      : budget_(budget), choice_(parts * (budget + 1)), least_(budget + 1, kNoPlan) {
    least_[0] = 0;
  }

  void add(const BitLosses& losses) {
    std::vector<double> next(budget_ + 1, kNoPlan);
    for (size_t spent = 0; spent <= budget_; ++spent) {
      for (size_t i = 0; i < kPlanBits.size(); ++i) {
        const auto bits = static_cast<size_t>(held_bits(kPlanBits[i]));
        if (bits > spent || least_[spent - bits] == kNoPlan) continue;
        const double sum = least_[spent - bits] + losses[i];
        if (sum >= next[spent]) continue;
        next[spent] = sum;
        choice_[parts_ * (budget_ + 1) + spent] = static_cast<uint8_t>(i);
      }
    }
    least_ = std::move(next);
    ++parts_;
  }

  /// The choice of each part.
  std::vector<int> best() const {
    size_t spent = static_cast<size_t>(std::min_element(least_.begin(), least_.end()) - least_.begin());
    std::vector<int> out(parts_);
    for (size_t part = parts_; part-- > 0;) {
      out[part] = kPlanBits[choice_[part * (budget_ + 1) + spent]];
      spent -= static_cast<size_t>(held_bits(out[part]));
    }
    return out;
  }

 private:
  size_t budget_;
  size_t parts_ = 0;
  std::vector<uint8_t> choice_;  // [part][spent]
  std::vector<double> least_;    // [spent]
};

}  // namespace

Result<std::vector<KvBits>> plan_kv_bits(std::span<const BitLosses> losses, double mean_bits) {
  if (losses.empty() || losses.size() % 2 != 0) {
    return invalid_argument("losses of keys and values of each layer are wanted");
  }
  for (const BitLosses& part : losses) {
    for (const double loss : part) {
      if (!std::isfinite(loss)) return invalid_argument("a measured loss is not a number");
    }
  }
  if (!(mean_bits >= held_bits(1))) {
    return invalid_argument("a mean of " + std::to_string(mean_bits) + " bits: codes of 1 bit take " +
                            std::to_string(held_bits(1)));
  }
  const double all = std::min(mean_bits, 16.0) * static_cast<double>(losses.size());
  PlanTable table(losses.size(), static_cast<size_t>(std::floor(all + 1e-9)));
  for (const BitLosses& part : losses) table.add(part);
  const std::vector<int> chosen = table.best();
  std::vector<KvBits> out;
  for (size_t i = 0; i < chosen.size(); i += 2) out.push_back({chosen[i], chosen[i + 1]});
  return out;
}

double mean_held_bits(const KvCodec& codec, size_t layers) {
  if (!codec.on()) return 16;
  double sum = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    const KvBits bits = bits_of_layer(codec, layer);
    sum += held_bits(bits.k) + held_bits(bits.v);
  }
  return sum / static_cast<double>(2 * layers);
}

}  // namespace isthmus
