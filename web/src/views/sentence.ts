// The text as chips: what the chosen token looks at is coloured, and arcs run there.
import type { Actions } from '../actions.ts';
import { css, textOn, weightColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { percent, score, short } from '../format.ts';
import { choice, rowOf, sees, switchedRun } from '../select.ts';
import { isDark, type State } from '../state.ts';
import { beginsWord, chipText, nextName, textOf } from '../tokens.ts';

const visibleFrom = 0.01; // below, a chip keeps the colour of the page
const numberFrom = 0.1; // from here its weight stands below it
const arcFrom = 0.04;
const around = 12; // of a long text: so many tokens on each side of the chosen one
const longFrom = 96;

export function shownTokens(count: number, query: number): { first: number; end: number } {
  if (count <= longFrom) return { first: 0, end: count };
  const first = Math.max(0, Math.min(query - around, count - 2 * around - 1));
  return { first, end: Math.min(count, first + 2 * around + 1) };
}

function chip(s: State, a: Actions, n: number): Node_ {
  const run = s.run!;
  const { query, key } = choice(s);
  const weight = rowOf(s, query)[n]!;
  const looked = n !== query && sees(s, query, n) && weight >= visibleFrom;
  const text = chipText(run.tokens[n]!, n);
  const colour = weightColour(weight, isDark(s));
  const style: Record<string, string> = looked ? { background: css(colour), color: textOn(colour) } : {};
  const classes = ['chip', n === query && 'on', n === key && n !== query && 'key',
                   n === 0 && text === 'begin' && 'begin', n !== query && !sees(s, query, n) && 'future',
                   !beginsWord(run.tokens, n) && 'joined',
                   n + 1 < run.tokens.length && !beginsWord(run.tokens, n + 1) && 'joins'];
  const below = looked && weight >= numberFrom
    ? h('i', { class: 'w' }, text.length < 3 ? short(weight) : score(weight)) : h('i', null, n);
  return h('button', {
    class: classes.filter(Boolean).join(' '), 'data-n': n, tabindex: n === query ? 0 : -1,
    title: `${JSON.stringify(textOf(run.tokens[n]!.piece))}  index ${n}  id ${run.tokens[n]!.id}`,
    'aria-pressed': String(n === query),
    onclick: () => a.lock({ query: n, key: null }),
    onpointerenter: (e: PointerEvent) => e.pointerType !== 'touch' && a.hover({ query: n, key: null }),
    onpointerleave: () => a.hover(null),
  }, h('b', { style }, text), below);
}

function nextChip(s: State): Node_ | null {
  const switched = switchedRun(s);
  const next = (switched ?? s.run!).predictions[0];
  if (!next) return null;
  return h('span', { class: switched ? 'chip next differs' : 'chip next', title: `The model’s next token, id ${next.id}` },
           h('b', null, nextName(next, s.run!.tokens)), h('i', null, `${percent(next.probability)} next`));
}

// Arcs only where all chips stand in one line.
function drawArcs(svg: SVGSVGElement, s: State): void {
  const box = svg.getBoundingClientRect();
  const places = new Map<number, DOMRect>();
  for (const each of svg.parentElement!.querySelectorAll<HTMLElement>('.chip[data-n]')) {
    places.set(Number(each.dataset.n), each.firstElementChild!.getBoundingClientRect());
  }
  svg.replaceChildren();
  const { query, key } = choice(s);
  const from = places.get(query);
  const tops = [...places.values()].map((p) => p.top);
  if (!from || s.windowWidth <= 900 || Math.max(...tops) - Math.min(...tops) > 4) return;
  const row = rowOf(s, query);
  for (const [n, to] of places) {
    if (n === query || !(row[n]! >= arcFrom) || !sees(s, query, n)) continue;
    const [x0, x1] = [from.left + from.width / 2 - box.left, to.left + to.width / 2 - box.left];
    const y = from.top - box.top - 2;
    const height = 1.28 * Math.min(34, 10 + Math.abs(x0 - x1) * 0.07);
    svg.append(path(`M${x0} ${y}C${x0} ${y - height} ${x1} ${y - height} ${x1} ${y - 1}`,
                    1 + 3.4 * row[n]!, 0.28 + 0.72 * row[n]!));
    if (n === key) svg.append(path(`M${x1 - 4} ${y - 6}L${x1} ${y - 0.5}L${x1 + 4} ${y - 6}`, 2, 1));
  }
}

function path(d: string, width: number, opacity: number): SVGPathElement {
  const made = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  made.setAttribute('d', d);
  made.setAttribute('stroke-width', width.toFixed(2));
  made.setAttribute('opacity', opacity.toFixed(2));
  return made;
}

// Of a line that is longer than the screen, and of lines that are more than there is room for, the
// part with the chosen token.
function showChosen(chips: HTMLElement): void {
  const on = chips.querySelector<HTMLElement>('.chip.on');
  if (!on) return;
  const chip = on.getBoundingClientRect();
  if (chips.scrollWidth > chips.clientWidth) {
    const line = chips.getBoundingClientRect();
    chips.scrollLeft += (chip.left + chip.right) / 2 - (line.left + line.right) / 2;
  }
  const lines = chips.parentElement!;
  const frame = lines.getBoundingClientRect();
  if (chip.top < frame.top || chip.bottom > frame.bottom) lines.scrollTop += chip.bottom - frame.bottom + 8;
}

export function sentence(s: State, a: Actions): Node_[] {
  if (!s.run) return [h('div', { class: 'chips waiting' }, s.error ? '' : 'Starting the engine…')];
  const count = s.run.tokens.length;
  const { first, end } = shownTokens(count, choice(s).query);
  const words: Node_[] = [];
  for (let n = first; n < end; ++n) {
    if (n === first || beginsWord(s.run.tokens, n)) words.push(h('span', { class: 'word' }));
    words[words.length - 1]!.kids.push(chip(s, a, n));
  }
  const long = count > longFrom;
  return [
    h('svg', { class: 'arcs', 'aria-hidden': 'true', after: (svg: SVGSVGElement) => {
      showChosen(svg.nextElementSibling as HTMLElement);
      drawArcs(svg, s);
    } }),
    h('div', { class: long ? 'chips long' : 'chips' }, first > 0 && h('span', { class: 'more-tokens' }, '…'),
      words, end < count ? h('span', { class: 'more-tokens' }, '…') : nextChip(s)),
  ];
}
