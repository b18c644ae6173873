#include "engine/stream_choice.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

StreamRecord record(const std::string& cpu, size_t threads, StreamPlan plan) {
  return {cpu, "avx2", threads, plan};
}

TEST(StreamRecords, SurviveTheirText) {
  const std::vector<StreamRecord> records = {record("A CPU @ 2.00GHz", 1, {4, 1024, 12.5}),
                                             record("Other", 8, {1, 0, 33.25})};
  const auto back = parse_stream_records(format_stream_records(records));
  ASSERT_EQ(back.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].cpu, records[i].cpu);
    EXPECT_EQ(back[i].isa, records[i].isa);
    EXPECT_EQ(back[i].threads, records[i].threads);
    EXPECT_EQ(back[i].plan.panels, records[i].plan.panels);
    EXPECT_EQ(back[i].plan.prefetch_bytes, records[i].plan.prefetch_bytes);
    EXPECT_DOUBLE_EQ(back[i].plan.gb_per_s, records[i].plan.gb_per_s);
  }
}

TEST(StreamRecords, NamesCannotForgeFieldsOrLines) {
  const auto back =
      parse_stream_records(format_stream_records(std::vector{record("a\tb\nstreams-1", 1, {4, 1024, 1})}));
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].cpu, "a b streams-1");
}

TEST(StreamRecords, WhatIsNotUnderstoodIsNotThere) {
  const std::string good = "streams-1\tcpu\tisa\t2\t4\t1024\t12.50\n";
  ASSERT_EQ(parse_stream_records(good).size(), 1U);
  for (const std::string bad :
       {"streams-2\tcpu\tisa\t2\t4\t1024\t12.50\n", "streams-1\tcpu\tisa\t0\t4\t1024\t12.50\n",
        "streams-1\tcpu\tisa\t2\t3\t1024\t12.50\n", "streams-1\tcpu\tisa\t2\t4\t9999999999\t12.50\n",
        "streams-1\tcpu\tisa\t2\t4\t1024\t-1\n", "streams-1\tcpu\tisa\t2\t4\t1024\tnan\n",
        "streams-1\tcpu\tisa\t2\t4\t1024\n", "streams-1\tcpu\tisa\t2\t4\t1024\t12.50\tmore\n", "\n",
        "\t\t\t\t\t\t\n", "streams-1\tcpu\tisa\t-2\t4\t1024\t12.50\n",
        "streams-1\tcpu\tisa\t2x\t4\t1024\t12.50\n"}) {
    EXPECT_TRUE(parse_stream_records(bad).empty()) << bad;
    EXPECT_EQ(parse_stream_records(bad + good).size(), 1U) << bad;
  }
  for (size_t cut = 0; cut + 1 < good.size(); ++cut) {
    const auto some = parse_stream_records(good.substr(0, cut));
    for (const auto& r : some) EXPECT_EQ(r.plan.panels, 4U);  // only the speed may lose digits
  }
  std::string many;
  for (size_t i = 0; i < 2 * kMostStreamRecords; ++i) many += good;
  EXPECT_EQ(parse_stream_records(many).size(), kMostStreamRecords);
}

}  // namespace
}  // namespace isthmus
