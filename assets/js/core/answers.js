// @ts-check
// Answers about a run that several views share: each is requested once.

export const answers = new WeakMap();

// One question about a run, asked once however many views want the answer; a failure is asked again.
export const requestOnce = async (app, what) => {
  const { run } = app;
  if (!answers.has(run)) answers.set(run, new Map());
  const known = answers.get(run);
  if (!known.has(what)) known.set(what, app.ask(what));
  const answer = await known.get(what);
  if (answer.error !== undefined) known.delete(what);
  return answer;
};
