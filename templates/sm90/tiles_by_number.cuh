// A tile follows from its number alone: nothing is searched for.

struct TileSearch {};

__device__ __forceinline__ TileSearch start_search(const ForwardParameters&) {
  return {};
}

__device__ __forceinline__ Tile find_tile(const HopperForwardParameters& p, TileSearch&, int index) {
  return tile_at(p, index);
}

__device__ __forceinline__ bool ends_at(const HopperForwardParameters&, const Tile&) {
  return false;
}
