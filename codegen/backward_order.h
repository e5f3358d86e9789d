// The order of a block of the sm90 family's backward kernel: which product is issued when, and what runs
// under it. Small changes of it move the speed by 20 %, in either direction, so it is an axis of the
// schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// `steps` are words, in the order in which a consumer does them for a block of query rows:
///   S, dP, dV, dK, dQ     issue a product
///   P                     wait for S, probabilities
///   dS                    wait for dP, dS; for other consumers into shared memory
///   dV!, dK!, dQ!         wait for it; give dO back, give Q back, send dQ away
///   take, pass            a turn on the tensor cores; without these words the consumers take no turns
/// +S is S of the next block, -dQ is dQ of the last one, and so on. Waits are counted by the emitter. Nothing
/// may be at work over the loop's edge, or ptxas waits after each product (C7514).
struct BackwardOrder {
  std::string_view name;
  bool splits_columns;  // for consumers that share their keys, see sm90_backward::splits_columns
  std::string_view steps;
};

/// By number, as a schedule has it.
const std::vector<BackwardOrder>& backward_orders();

/// -1: there is no order of that name.
int order_number(std::string_view name);

/// Whether one of the steps is `word`.
bool has_step(const BackwardOrder& order, std::string_view word);

/// Whether the first or the last block of a tile of keys differs from the others: a step speaks of its
/// neighbour.
bool first_block_differs(const BackwardOrder& order);
bool last_block_differs(const BackwardOrder& order);

/// The functions begin_blocks, differentiate_block<first, last> and end_blocks in this order, with what
/// dropout and the gradient of the bias add, or without. Throws Error(internal) for steps that cannot be.
std::string backward_loop(const BackwardOrder& order, bool dropout = false, bool bias_gradient = false);

}  // namespace tilewright
