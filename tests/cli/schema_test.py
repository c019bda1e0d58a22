"""Every --json about a model and a text is what docs/schema says, and the schemas refuse what it is not."""

import copy
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jsonschema

CEPHALO = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs/schema").glob("*.json")}
TEXT = "Peter met Mary. Peter met"
OTHER = "Peter met John. Peter met"
PATCH = ("patch", TEXT, OTHER, "--answer", " Mary", "--wrong", " John")

COMMANDS = {
    "look": [("look", TEXT), ("look", TEXT, "--all"), ("look", TEXT, "--all", "--no-sink"),
             ("look", TEXT, "--layer", "1", "--value-weighted", "--no-begin"), ("look", b"\xff\xfe")],
    "effects": [("look", TEXT, "--effects"), ("look", TEXT, "--effects", "--with", "scale:0.5"),
                ("look", TEXT, "--pairs", "--with", "mean"), ("look", TEXT, "--edges", "met"),
                ("look", TEXT, "--edges", "met", "--with", "cut"), ("look", "", "--effects"),
                ("look", TEXT, "--ablate", "L3H1,L1.mlp,L2,L0H1:4>2")],
    "lens": [("lens", TEXT), ("lens", TEXT, "--frozen-norm"), ("lens", TEXT, "--no-norm", "--top", "1")],
    "patch": [PATCH, ("patch", TEXT, TEXT, "--answer", " Mary", "--wrong", " John")],
    "trace": [("trace",), ("trace", TEXT, "--layer", "3", "--head", "1")],
}


def refuse_constant(word):
    raise ValueError(f"{word} is not JSON")


def output(*arguments):
    result = subprocess.run([CEPHALO, *arguments, "--json"], capture_output=True)
    assert result.returncode == 0, (arguments, result.stderr)
    return json.loads(result.stdout, parse_constant=refuse_constant)


def validator(name):
    return jsonschema.Draft202012Validator(SCHEMAS[name])


class Schemas(unittest.TestCase):
    def test_they_are_schemas_with_their_names(self):
        self.assertEqual(set(SCHEMAS), set(COMMANDS))
        for name, schema in SCHEMAS.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertEqual(schema["$id"], f"cephalo.{name}/1")

    def test_every_json_is_what_they_say(self):
        for name, commands in COMMANDS.items():
            for command in commands:
                with self.subTest(command=command):
                    validator(name).validate(output(*command))

    def test_all_share_one_head(self):
        heads = [{key: SCHEMAS[name]["$defs"][key] for key in ("model", "token")} for name in SCHEMAS]
        for head in heads:
            self.assertEqual(head, heads[0])

    def test_they_refuse_another_schema_a_missing_key_and_one_too_many(self):
        for name in ("look", "effects", "lens", "patch"):
            good = output(*COMMANDS[name][0])
            for key in good:
                bad = copy.deepcopy(good)
                del bad[key]
                if key != "probe":
                    self.assertFalse(validator(name).is_valid(bad), (name, key))
            self.assertFalse(validator(name).is_valid({**good, "more": 1}))
            self.assertFalse(validator(name).is_valid({**good, "schema": f"cephalo.{name}/2"}))

    def test_maps_are_layers_of_heads(self):
        out = output("look", TEXT, "--effects")
        layers, heads = out["model"]["num_layers"], out["model"]["num_heads"]
        for key in ("logit_change", "divergence", "loss_change"):
            self.assertEqual([len(row) for row in out["heads"][key]], [heads] * layers)
        self.assertEqual([len(row) for row in out["labels"]], [heads] * layers)
        patch = output(*PATCH)
        self.assertEqual([len(row) for row in patch["heads"]], [heads] * layers)
        self.assertEqual([len(row) for row in patch["positions"]], [len(patch["tokens"])] * layers)
        lens = output("lens", TEXT)
        self.assertEqual([len(row) for row in lens["layers"]], [len(lens["tokens"])] * (layers + 1))

    def test_a_text_beyond_training_is_marked(self):
        with tempfile.TemporaryDirectory() as folder:
            long = f"{folder}/long"
            subprocess.run([CEPHALO, "convert", "builtin", long, "--context-length", "320"], check=True,
                           capture_output=True)
            text = "word " * 270
            commands = {"look": ("look", text), "effects": ("look", text, "--ablate", "L3H1"),
                        "lens": ("lens", text, "--top", "1"),
                        "patch": ("patch", text, text, "--answer", " Mary", "--wrong", " John")}
            for name, command in commands.items():
                out = output(*command, "--model", long)
                validator(name).validate(out)
                self.assertEqual(out["trained_context_length"], 256)


class Numbers(unittest.TestCase):
    """What the numbers say, by what other numbers say."""

    def test_each_head_is_the_single_ablation(self):
        out = output("look", TEXT, "--effects")
        for layer, head in ((3, 1), (0, 0), (2, 3)):
            one = output("look", TEXT, "--ablate", f"L{layer}H{head}")["ablation"]
            self.assertEqual(one["logit_change"], out["heads"]["logit_change"][layer][head])
            self.assertEqual(one["divergence"], out["heads"]["divergence"][layer][head])
            change = (math.fsum(one["losses_after"]) - math.fsum(one["losses_before"])) / len(out["losses"])
            self.assertAlmostEqual(change, out["heads"]["loss_change"][layer][head], places=9)

    def test_a_pair_is_the_ablation_of_both(self):
        out = output("look", TEXT, "--pairs")
        self.assertEqual((out["pairs"]["done"], out["pairs"]["all"]), (496, 496))
        pair = next(p for p in out["pairs"]["pairs"]
                    if (p["a"], p["b"]) == ({"layer": 2, "head": 3}, {"layer": 3, "head": 1}))
        both = output("look", TEXT, "--ablate", "L2H3,L3H1")["ablation"]
        self.assertEqual(pair["together"], both["logit_change"])
        alone = out["heads"]["logit_change"]
        self.assertAlmostEqual(pair["apart"], alone[2][3] + alone[3][1], places=12)

    def test_an_edge_is_the_ablation_of_that_look(self):
        out = output("look", TEXT, "--edges", "6")
        one = output("look", TEXT, "--ablate", "L3H1:6>3")["ablation"]
        self.assertEqual(out["edges"]["query"], 6)
        self.assertEqual(one["logit_change"], out["edges"]["logit_change"][3][1][3])

    def test_the_lens_ends_with_what_look_says(self):
        lens, look = output("lens", TEXT), output("look", TEXT)
        last = lens["layers"][-1][-1]
        self.assertEqual([t["id"] for t in last["top"]], [t["id"] for t in look["predictions"]])
        for ours, theirs in zip(last["top"], look["predictions"]):
            self.assertAlmostEqual(ours["probability"], theirs["probability"], places=6)

    def test_a_patch_of_the_whole_stream_is_the_clean_text(self):
        patch = output(*PATCH)
        self.assertTrue(patch["divided"])
        differing = [i for i, (a, b) in enumerate(zip(patch["tokens"], patch["corrupt_tokens"]))
                     if a["id"] != b["id"]]
        self.assertEqual(len(differing), 1)
        # The texts differ there alone, and before layer 0 nothing has spread yet.
        self.assertAlmostEqual(patch["positions"][0][differing[0]], 1.0, places=4)
        same = output("patch", TEXT, TEXT, "--answer", " Mary", "--wrong", " John")
        self.assertFalse(same["divided"])
        self.assertAlmostEqual(same["heads"][3][1], same["clean"], places=4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
