#!/usr/bin/env python3
"""Parses the Kubernetes manifests of docs/kubernetes, and checks that the options they give to ridge
exist: check_manifests.py RIDGE FOLDER. Exit code 77, which ctest takes for skipped, without PyYAML.
"""
import pathlib
import re
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("python3-yaml is not here")
    sys.exit(77)


def pod_templates(manifest):
    spec = manifest.get("spec", {})
    if "template" in spec:
        return [spec["template"]]
    return [each["template"] for each in spec.get("mpiReplicaSpecs", {}).values()]


def check_ridge_options(ridge, words):
    """Options after the name of the program and its command, against the program's own help."""
    at = words.index("ridge")
    help_text = subprocess.run([ridge, words[at + 1], "--help"], capture_output=True, text=True,
                               check=True).stdout
    known = set(re.findall(r"--[a-z][a-z-]*", help_text))
    unknown = [word for word in words[at:] if word.startswith("--") and word not in known]
    assert not unknown, f"ridge {words[at + 1]} has no {', '.join(unknown)}"


def check(ridge, manifest):
    for field in ("apiVersion", "kind", "metadata"):
        assert field in manifest, f"no {field}"
    runs_ridge = False
    for template in pod_templates(manifest):
        volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
        for container in template["spec"]["containers"]:
            words = container["command"] + container.get("args", [])
            assert all(isinstance(word, str) for word in words), f"{words}: not all are strings"
            if "ridge" in words:
                check_ridge_options(ridge, words)
                runs_ridge = True
            for mount in container.get("volumeMounts", []):
                assert mount["name"] in volumes, f"no volume {mount['name']}"
        selector = manifest["spec"].get("selector", {}).get("matchLabels", {})
        labels = template.get("metadata", {}).get("labels", {})
        assert selector.items() <= labels.items(), f"{selector} selects no pod of the template"
    return runs_ridge


def main():
    ridge, folder = sys.argv[1:]
    files = sorted(pathlib.Path(folder).glob("*.yaml"))
    assert files, f"no manifest in {folder}"
    for file in files:
        manifests = list(yaml.safe_load_all(file.read_text()))
        assert any([check(ridge, manifest) for manifest in manifests]), f"{file}: ridge does not run"
        print(file.name, ", ".join(manifest["kind"] for manifest in manifests))


main()
