// The shape of a module of strings/: texts, lists and groups of texts, and functions that put values into a text.

export type Text = string | number | string[] | Words | Text[] | ((...values: any[]) => any);

export interface Words {
  [name: string]: Text;
}
