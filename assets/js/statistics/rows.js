// @ts-check
// Columns of a statistics payload as row objects.

// Columns of numbers → objects.
export const statRows = (columns) => {
  const names = Object.keys(columns);
  return (columns[names[0]] || []).map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
};
