// Who may run and whose KV stays: admission, and what happens when blocks run out.
#include <algorithm>

#include "engine/batch_member.h"

namespace isthmus {

/// Lets waiting requests in, best rank first. None overtakes the first that does not fit: small requests
/// would keep a large one out for ever. One that waits for what another reads is passed over.
void Batcher::admit() {
  for (auto& member : members_) {
    if (member->state != Member::State::kWaiting || waits_for_reader(*member)) continue;
    if (!find_place(*member)) return;
    reuse_prefix(*member);
    if (!find_blocks(*member)) return;
    // A place may have been found only by the levels; the worst that runs makes it real.
    size_t running = 0;
    Member* worst = nullptr;
    for (auto& other : members_) {
      if (other->state != Member::State::kRunning) continue;
      ++running;
      worst = other.get();
    }
    if (running == max_running_) worst->state = Member::State::kWaiting;  // its KV stays while there is room
    member->state = Member::State::kRunning;
  }
}

/// A free place in the step, or one that a worse level has.
bool Batcher::find_place(const Member& head) {
  size_t running = 0;
  unsigned worst = 0;
  for (const auto& member : members_) {
    if (member->state != Member::State::kRunning) continue;
    ++running;
    worst = std::max(worst, member->rank.level);
  }
  return running < max_running_ || worst > head.rank.level;
}

/// Blocks for the text of a sequence and one token more.
size_t Batcher::blocks_with_next(const Member& member) const {
  const size_t tokens = std::min(member.text.size() + 1, capacity_);
  return (tokens + kBlockKeys - 1) / kBlockKeys * streams_;
}

/// Of them, those that the sequence does not hold yet, or holds a block in common with others that it will
/// have to copy.
size_t Batcher::missing_blocks(const Member& member) const {
  const size_t all = blocks_with_next(member);
  return all - std::min(all, member.kv.blocks()) + (member.kv.tail_is_shared() ? streams_ : 0);
}

/// Blocks that running sequences will need to read their texts and one token more.
size_t Batcher::promised_blocks() const {
  size_t promised = 0;
  for (const auto& member : members_) {
    if (member->state == Member::State::kRunning) promised += missing_blocks(*member);
  }
  return promised;
}

/// Blocks that nobody uses: the prefix tree's among them go when they are needed.
size_t Batcher::spare_blocks() const {
  return pool_->free_blocks() + (prefixes_ ? prefixes_->evictable() : 0);
}

/// Blocks for the whole text of `head`: free ones, or those of sequences that it may displace.
bool Batcher::find_blocks(const Member& head) {
  const size_t needed = missing_blocks(head);
  const auto missing = [&] {
    const size_t wanted = needed + promised_blocks();
    return wanted - std::min(wanted, spare_blocks());
  };
  const auto displaceable = [&](const Member& member) {
    if (&member == &head || !(head.rank < member.rank)) return false;
    const bool runs = member.state == Member::State::kRunning;
    return runs ? head.rank.level < member.rank.level : member.holds_blocks();
  };
  size_t gain = 0;
  bool others_run = false;
  for (const auto& member : members_) {
    if (displaceable(*member)) {
      const bool runs = member->state == Member::State::kRunning;
      gain += runs ? blocks_with_next(*member) : member->kv.blocks();
    } else {
      others_run |= member->state == Member::State::kRunning;
    }
  }
  // With nobody to wait for the first one goes in at any rate; grow() says what becomes of it.
  if (others_run && missing() > gain) return false;
  for (auto it = members_.rbegin(); it != members_.rend() && missing() > 0; ++it) {
    if (displaceable(**it)) preempt(**it);
  }
  return true;
}

void Batcher::preempt(Member& member) {
  member.state = Member::State::kWaiting;
  member.chunk = 0;
  remember_prefix(member, member.kv.length());
  member.kv.clear();
  ++report_.preempted;
}

Batcher::Member* Batcher::worst_holder() {
  for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
    if ((*it)->holds_blocks()) return it->get();
  }
  return nullptr;
}

/// Grows the KV of this step's sequences, best rank first.
void Batcher::make_room() {
  for (auto& member : members_) {
    if (member->chunk > 0 && !grow(*member)) member->chunk = 0;
  }
}

/// False when the sequence takes no part in this step: it gave up its blocks to wait, or ended.
bool Batcher::grow(Member& member) {
  while (true) {
    Status status = member.kv.grow(member.chunk);
    if (status.ok()) return true;
    Member* victim = worst_holder();
    if (victim != nullptr && member.rank < victim->rank) {
      preempt(*victim);
      continue;
    }
    const bool others = std::any_of(members_.begin(), members_.end(), [&](const auto& other) {
      return other.get() != &member && other->holds_blocks();
    });
    if (others) {
      preempt(member);
    } else {
      finish(member, std::move(status));  // the pool's blocks are held by somebody else
    }
    return false;
  }
}

}  // namespace isthmus
