# Installs the tools that make a run quick and complete; scripts/setup installs those that it needs.

readonly tools=(ccache gdb mold clang-16 libclang-rt-16-dev slurm-wlm munge openssh-server openssh-client python3-venv man-db
  zsh etcd-server libopenmpi-dev openmpi-bin libmpich-dev mpich mmdebstrap faketime dpkg-dev file)
# The distribution's PyTorch, for the tests of PyTorch scripts; they skip without.
readonly torch=(python3-torch libopenblas0-pthread libtorch-dev)

apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@"; }

apt_install() {  # package...
  dpkg-query -W "$@" >/dev/null 2>&1 ||
    apt install -y --no-install-recommends "$@" >/dev/null ||
    echo "ci: could not install $*: going on without" >&2
}

install_tools() {
  dpkg-query -W "${tools[@]}" "${torch[@]}" >/dev/null 2>&1 || apt update || true
  apt_install "${tools[@]}"
  apt_install "${torch[@]}"
}

make_venv() { [ -x build/python/bin/python ] || python3 -m venv build/python; }

pip_install() { make_venv && build/python/bin/pip install -q "$@"; }  # wheel...

# The schemas of Kubernetes, for the manifests in scripts/k8s.
install_manifest_schemas() {
  [ -d "$(echo build/python/lib/python3*/site-packages/kubernetes_validate)" ] ||
    pip_install kubernetes-validate ||
    echo "ci: could not install kubernetes-validate: the manifests go unchecked" >&2
}

# The NCCL back end is compiled and linked: with the CUDA toolkit where that has NCCL, else with NVIDIA's wheels.
find_cuda() {
  export DDPRUN_CUDA=AUTO
  if [ -f "${CUDA_HOME:-/usr/local/cuda}/include/nccl.h" ]; then return; fi
  pip_install nvidia-cuda-runtime-cu12 nvidia-nccl-cu12 ||
    echo "ci: could not install CUDA's runtime and NCCL: the NCCL back end is not compiled" >&2
  local wheels
  wheels=$(echo "$PWD"/build/python/lib/python3*/site-packages/nvidia)
  export CUDA_HOME=$wheels/cuda_runtime NCCL_HOME=$wheels/nccl
}

# The back end for PyTorch wants the newest one, a download of 2.5 GB: it arrives while the builds compile.
install_pytorch() {
  make_venv || exit
  exec timeout 1200 nice -n 19 build/python/bin/pip install -q torch numpy
}
