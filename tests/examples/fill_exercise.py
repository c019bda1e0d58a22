"""fill_exercise.py EXERCISE.cc OUT.cc [VARIABLE=EXPRESSION]: fills the gaps with the solutions,
some of them with something else."""

import pathlib
import re
import sys

SPLIT = "{e.batch, e.tokens, e.num_heads, e.head_dim}"
SOLUTIONS = {
    "q": "linear(e.x, e.W_query)",
    "k": "linear(e.x, e.W_key)",
    "v": "linear(e.x, e.W_value)",
    "q_split": f"view(q, {SPLIT})",
    "k_split": f"view(k, {SPLIT})",
    "v_split": f"view(v, {SPLIT})",
    "q_heads": "transpose(q_split, 1, 2)",
    "k_heads": "transpose(k_split, 1, 2)",
    "v_heads": "transpose(v_split, 1, 2)",
    "scores": "matmul(q_heads, transpose(k_heads, 2, 3))",
    "masked": "masked_fill(scores, future, -std::numeric_limits<double>::infinity())",
    "weights": "softmax(multiply(masked, 1.0 / std::sqrt(static_cast<double>(e.head_dim))))",
    "context_heads": "matmul(weights, v_heads)",
    "swapped": "Tensor::copy(transpose(context_heads, 1, 2))",
    "context": "view(swapped, {e.batch, e.tokens, e.d_out})",
    "output": "linear(context, e.out_weight, e.out_bias)",
}
GAP = re.compile(r"(\w+) = \{\};\s*// GAP$", re.MULTILINE)


def main():
    source, target, *others = sys.argv[1:]
    answers = SOLUTIONS | dict(other.split("=", 1) for other in others)
    text = pathlib.Path(source).read_text()
    gaps = GAP.findall(text)
    if gaps != list(SOLUTIONS):
        sys.exit(f"the gaps are {gaps}, not {list(SOLUTIONS)}")
    filled = GAP.sub(lambda gap: f"{gap[1]} = {answers[gap[1]]};", text)
    pathlib.Path(target).write_text(filled)


main()
