// Changes of a conversation's turns and draft.
import {is_empty} from "./runs.js";

// An answer that a reload cut short; a message without one goes back into the input.
export function mend(one) {
  const turn = one.turns.at(-1);
  if (turn?.role === "assistant" && !turn.end) turn.end = "reload";
  if (turn?.end === "reload" && is_empty(turn)) {
    one.turns.pop();
    if (turn.others) one.turns.push(...version_of(turn.others, turn.others.length - 1));
  }
  if (one.turns.at(-1)?.role === "user") put_back(one, one.turns.pop());
  for (const said of one.waiting ?? []) put_back(one, said);
  one.waiting = [];
  return one;
}

export function put_back(one, said) {
  one.draft = {text: [said.text, one.draft.text].filter(Boolean).join("\n\n"),
               files: [...said.files, ...one.draft.files]};
}

export function title_of({text, files}) {
  const line = text.trim().split("\n")[0] || files[0].name;
  return line.length > 60 ? line.slice(0, 59) + "…" : line;
}

// Tails of a conversation are versions of each other. The first turn of the shown one has the
// `others` and its own place among them, `at`. All versions of what begins at `index`, in order:
export function versions_at(turns, index) {
  const [{others = [], at = 0, ...head}, ...rest] = turns.slice(index);
  return others.toSpliced(at, 0, [head, ...rest]);
}

export function version_of(all, at) {
  const [head, ...rest] = all[at];
  const others = all.toSpliced(at, 1);
  return [others.length ? {...head, others, at} : head, ...rest];
}
