"""One file for each table or figure, under the paper's names for them; `paper.names` lists them."""
