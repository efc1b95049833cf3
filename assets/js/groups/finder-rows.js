// @ts-check
// The rows of the finder's table: how they are made, filtered and ranked.

export const above = (row) => row.purity !== null && row.purity > row.null_high;

export function rowsOf(run, data) {
  return data.groups.flatMap((groups, layerIndex) =>
    groups.map((group, index) => ({
      ...group,
      layerIndex,
      order: layerIndex * run.numGroups + index,
      group: index,
      layer: run.layerIds[layerIndex],
      className: group.top_class === null ? null : data.class_names[group.top_class],
      lift: group.base_rate ? group.purity / group.base_rate : null,
      frequent: run.groups[layerIndex][index].tokens,
    })),
  );
}

export function fits(row, filter) {
  if (filter.layer !== "all" && filter.layer !== `l${row.layerIndex}`) return false;
  if (filter.class !== "all" && filter.class !== row.className) return false;
  if (filter.only === "above" && !above(row)) return false;
  if (filter.only === "flagged" && row.flags.length === 0) return false;
  const wanted = filter.token.trim().toLowerCase();
  return (
    wanted === "" || [...row.characteristic, ...row.frequent].some(([piece]) => piece.toLowerCase().includes(wanted))
  );
}

// Groups without a value come last either way.
export function ranked(rows, value, down) {
  const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : b - a);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return down ? order(x, y) : order(y, x);
  });
}
