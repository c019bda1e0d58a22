// Views return descriptions; patch() changes the document into what they say. Text becomes text
// nodes and styles go through CSSOM, so that a token such as <script> is inert and no rule of the
// page's Content-Security-Policy needs loosening.

export type Child = Node_ | string | number | null | undefined | false;

export interface Node_ {
  tag: string;
  props: Props;
  kids: (Node_ | string)[];
}

type Handler = (event: any) => void;

export interface Props {
  style?: Record<string, string>;
  // Called after every patch, when the element has its place: canvases are drawn there.
  after?: (element: any) => void;
  [name: string]: unknown;
}

const svgNamespace = 'http://www.w3.org/2000/svg';
const svgTags = new Set(['svg', 'g', 'path', 'rect', 'circle', 'text', 'tspan']);

export function h(tag: string, props: Props | null, ...kids: (Child | Child[])[]): Node_ {
  const flat: (Node_ | string)[] = [];
  for (const kid of kids.flat() as Child[]) {
    if (kid === null || kid === undefined || kid === false) continue;
    flat.push(typeof kid === 'number' ? String(kid) : kid);
  }
  return { tag, props: props ?? {}, kids: flat };
}

interface Kept {
  props: Props;
}
const kept = new WeakMap<Element, Kept>();

function setProp(element: any, name: string, value: unknown): void {
  if (name.startsWith('on')) {
    element[name] = (value as Handler | undefined) ?? null;
  } else if (name === 'value' || name === 'disabled') {
    if (element[name] !== value) element[name] = value;
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? '' : String(value));
  }
}

function setStyle(style: CSSStyleDeclaration, now: Record<string, string>,
                  before: Record<string, string>): void {
  for (const name of Object.keys(before)) if (!(name in now)) style.removeProperty(name);
  for (const [name, value] of Object.entries(now)) {
    if (before[name] !== value) style.setProperty(name, value);
  }
}

function create(node: Node_ | string): Node {
  if (typeof node === 'string') return document.createTextNode(node);
  return svgTags.has(node.tag) ? document.createElementNS(svgNamespace, node.tag)
                               : document.createElement(node.tag);
}

function patchElement(element: Element, node: Node_, done: (() => void)[]): void {
  const before = kept.get(element)?.props ?? {};
  for (const name of Object.keys(before)) {
    if (name !== 'style' && name !== 'after' && !(name in node.props)) {
      setProp(element, name, undefined);
    }
  }
  for (const [name, value] of Object.entries(node.props)) {
    if (name === 'style' || name === 'after') continue;
    if (before[name] !== value || name === 'value') setProp(element, name, value);
  }
  setStyle((element as HTMLElement).style, node.props.style ?? {}, before.style ?? {});
  kept.set(element, { props: node.props });
  patchKids(element, node.kids, done);
  const after = node.props.after;
  if (after) done.push(() => after(element));
}

function matches(at: Node, node: Node_ | string): boolean {
  if (typeof node === 'string') return at.nodeType === 3;
  return at.nodeType === 1 && (at as Element).localName === node.tag;
}

function patchKids(parent: Element, kids: (Node_ | string)[], done: (() => void)[]): void {
  kids.forEach((kid, index) => {
    let at: Node | null = parent.childNodes[index] ?? null;
    if (!at || !matches(at, kid)) {
      const made = create(kid);
      if (at) parent.replaceChild(made, at);
      else parent.appendChild(made);
      at = made;
    }
    if (typeof kid === 'string') {
      if (at.nodeValue !== kid) at.nodeValue = kid;
    } else {
      patchElement(at as Element, kid, done);
    }
  });
  while (parent.childNodes.length > kids.length) parent.removeChild(parent.lastChild!);
}

export function patch(parent: Element, kids: (Node_ | string)[]): void {
  const done: (() => void)[] = [];
  patchKids(parent, kids, done);
  for (const call of done) call();
}
