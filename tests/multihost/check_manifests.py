"""Checks scripts/k8s against the schemas of Kubernetes, and that the manifests set the variables that ddprun reads.

usage: check_manifests.py FOLDER       exit code 4: the Python package kubernetes-validate is missing
"""

import pathlib
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"SKIPPED: {error}; pip install kubernetes-validate")
    sys.exit(4)

VERSION = "1.31"


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def check_job(job, service):
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    environment = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    check(spec["completionMode"] == "Indexed", "the Job is not indexed")
    check(spec["parallelism"] == spec["completions"], "the pods do not run side by side")
    check(environment["DDPRUN_K8S_COMPLETIONS"]["value"] == str(spec["completions"]), "another number of completions")
    check(environment["DDPRUN_K8S_SERVICE"]["value"] == pod["subdomain"], "subdomain and DDPRUN_K8S_SERVICE differ")
    field = environment["DDPRUN_K8S_JOB"]["valueFrom"]["fieldRef"]["fieldPath"]
    check(field == "metadata.labels['batch.kubernetes.io/job-name']", "DDPRUN_K8S_JOB is not the job's name")
    volumes = {entry["name"]: entry for entry in pod["volumes"]}
    mounts = {entry["mountPath"] + "/token": entry["name"] for entry in pod["containers"][0]["volumeMounts"]}
    token = volumes[mounts[environment["DDPRUN_K8S_TOKEN_FILE"]["value"]]]["secret"]
    check(token["defaultMode"] == 0o400, "ddprun refuses a token that others may read")
    check(service["metadata"]["name"] == pod["subdomain"], "the pods' subdomain is no Service")
    check(service["spec"]["clusterIP"] == "None", "the Service is not headless")
    check(service["spec"]["publishNotReadyAddresses"], "pods that are not ready yet have no name")
    check(service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}, "other pods")


def main(folder):
    manifests = sorted(pathlib.Path(folder).glob("*.yaml"))
    check(manifests, f"no manifest in {folder}")
    for path in manifests:
        documents = {document["kind"]: document for document in yaml.safe_load_all(path.read_text())}
        for document in documents.values():
            kubernetes_validate.validate(document, VERSION, strict=True)
        check_job(documents["Job"], documents["Service"])
        print(f"{path.name}: {', '.join(documents)} as Kubernetes {VERSION} has them")


main(sys.argv[1])
