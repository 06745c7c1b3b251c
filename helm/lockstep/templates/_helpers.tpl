{{- /* Pods are those of jinja/MultiWorkerMirroredTemplate.yaml.jinja. Templates of pods and containers take a dict:
root                the chart's context
name                prefix of the object names
role, task          labels: worker or ps and its index, evaluator or serve and 0
mountsCheckpoints   whether the pod mounts the claim for checkpoints
job                 of a worker or ps: its item of .Values.jobs
*/ -}}

{{- /* The prefix of a job's object names. */ -}}
{{- define "lockstep.name" -}}
{{- $name := printf "%s-%s" .root.Release.Name .job.name -}}
{{- if gt (len $name) 46 -}}
{{- fail (printf "the release and the job make the name %s, which has %d characters, more than 46: use shorter ones" $name (len $name)) -}}
{{- end -}}
{{- if contains "." $name -}}
{{- fail (printf "the name %s has a dot, which names of Services may not have: use another name for the release" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "lockstep.image" -}}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag -}}
{{- end -}}

{{- define "lockstep.gpus" -}}
{{- ternary (int .Values.gpusPerNode) 0 .Values.isGpu -}}
{{- end -}}

{{- define "lockstep.ranks" -}}
{{- $gpus := include "lockstep.gpus" . | int -}}
{{- if and $gpus .Values.cluster.ranksPerWorker (ne $gpus (int .Values.cluster.ranksPerWorker)) -}}
{{- fail "each rank has one GPU: set cluster.ranksPerWorker to 0 or to gpusPerNode" -}}
{{- end -}}
{{- int .Values.cluster.ranksPerWorker | default $gpus | default 1 -}}
{{- end -}}

{{- define "lockstep.hasData" -}}
{{- .Values.dataset.claim | default .Values.dataset.download -}}
{{- end -}}

{{- /* Where the server looks for models. */ -}}
{{- define "lockstep.served" -}}
{{- list .Values.checkpoints.path .Values.serve.model | compact | join "/" -}}
{{- end -}}

{{- /* The value of a quantity of Kubernetes, in base units. */ -}}
{{- define "lockstep.amount" -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15
      "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .)) -}}
{{- end -}}

{{- /* Combinations of values that the schema cannot refuse. */ -}}
{{- define "lockstep.check" -}}
{{- $cluster := .Values.cluster -}}
{{- if and .Values.dataset.claim .Values.dataset.download -}}
{{- fail "dataset.claim and dataset.download are both set: keep one of them" -}}
{{- end -}}
{{- if and .Values.dataset.mirror (not .Values.dataset.download) -}}
{{- fail "dataset.mirror has no effect without dataset.download: set it to mnist or fashion_mnist" -}}
{{- end -}}
{{- if gt (int $cluster.minWorkers) (int $cluster.workers) -}}
{{- fail "cluster.minWorkers is more than cluster.workers: lower it, or set it to 0" -}}
{{- end -}}
{{- if gt (int $cluster.minAvailable) (int $cluster.workers) -}}
{{- fail "cluster.minAvailable is more than cluster.workers: lower it, or set it to 0" -}}
{{- end -}}
{{- if $cluster.parameterServers -}}
{{- if or .Values.isGpu (gt (int $cluster.ranksPerWorker) 1) -}}
{{- fail "with cluster.parameterServers each worker is one trainer, on CPUs: set isGpu to false and cluster.ranksPerWorker to 0" -}}
{{- end -}}
{{- if $cluster.minWorkers -}}
{{- fail "with cluster.parameterServers all workers are needed: set cluster.minWorkers or cluster.parameterServers to 0" -}}
{{- end -}}
{{- end -}}
{{- if eq (int $cluster.port) (int $cluster.statusPort) -}}
{{- fail "cluster.port and cluster.statusPort are equal: use two ports" -}}
{{- end -}}
{{- if and .Values.evaluator.enabled (not (include "lockstep.hasData" .)) -}}
{{- fail "evaluator.enabled needs a dataset: set dataset.claim or dataset.download" -}}
{{- end -}}
{{- include "lockstep.checkPaths" . -}}
{{- $workers := $cluster.resources -}}
{{- $ofWorkers := dict
      "requests" (dict "cpu" $workers.cpuRequest "memory" $workers.memoryRequest)
      "limits" (dict "cpu" $workers.cpuLimit "memory" $workers.memoryLimit)
-}}
{{- range $what, $resources := dict "cluster" $ofWorkers "evaluator" .Values.evaluator.resources "serve" .Values.serve.resources -}}
{{- range $name, $request := $resources.requests -}}
{{- with get ($resources.limits | default dict) $name -}}
{{- if gt (include "lockstep.amount" $request | float64) (include "lockstep.amount" . | float64) -}}
{{- fail (printf "%s.resources requests %s of %s, more than the limit of %s: raise the limit, or lower the request" $what $request $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.isGpu (or .Values.evaluator.enabled .Values.serve.enabled) (not $cluster.nodeSelector) -}}
{{- fail "isGpu with evaluator.enabled or serve.enabled needs cluster.nodeSelector: set it to labels of nodes with GPUs, since the chief must run on the node of these pods" -}}
{{- end -}}
{{- $settings := .Values.settings -}}
{{- range $value := list "env" "secretEnv" -}}
{{- range $variable, $_ := get $settings $value -}}
{{- if and (eq $value "env") (hasKey ($settings.secretEnv | default dict) $variable) -}}
{{- fail (printf "settings.env and settings.secretEnv both have %s: keep one of them" $variable) -}}
{{- end -}}
{{- if regexMatch "^(TF_CONFIG|CLUSTER_CONFIG|POD_NAME|JOB_COMPLETION_INDEX|MODEL_DIR|DATA_DIR|NUM_TRAIN_EPOCH|BATCH_SIZE)$" $variable -}}
{{- fail (printf "settings.%s has %s, which the chart sets: leave it out" $value $variable) -}}
{{- end -}}
{{- if regexMatch "^(LOCKSTEP_(DEVICE|STRATEGY|RANKS_PER_WORKER|RENDEZVOUS_TIMEOUT|LEAVE_TIMEOUT|JOB_.*|MIN_WORKERS|STATUS_PORT|INSECURE|MODEL_DIR|BACKUP_DIR|DATA_DIR|EPOCHS|GLOBAL_BATCH_SIZE|LAUNCH_ID|GENERATION|CONTROL_FD)|(PMIX|PMI|OMPI_COMM|SLURM)_.*)$" $variable -}}
{{- fail (printf "settings.%s has %s, which the chart or a launcher sets: leave it out" $value $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "lockstep.checkArguments" . -}}
{{- end -}}

{{- /* Where volumes may be mounted: as in the job's template (scripts/job_contradictions.py). */ -}}
{{- define "lockstep.checkPaths" -}}
{{- $checkpoints := .Values.checkpoints.path -}}
{{- $data := .Values.dataset.path -}}
{{- $secrets := .Values.settings.secretVolumes | default dict -}}
{{- $all := list (list "checkpoints.path" $checkpoints) (list "dataset.path" $data) -}}
{{- range $secret, $path := $secrets -}}
{{- $all = append $all (list "settings.secretVolumes" $path) -}}
{{- end -}}
{{- range $path := values $secrets -}}
{{- $overlaps := 0 -}}
{{- range $other := $all -}}
{{- if or (include "lockstep.isWithin" (list $path (index $other 1))) (include "lockstep.isWithin" (list (index $other 1) $path)) -}}
{{- $overlaps = add1 $overlaps -}}
{{- end -}}
{{- end -}}
{{- if gt $overlaps 1 -}}{{- /* it overlaps itself */ -}}
{{- fail (printf "settings.secretVolumes mounts a Secret at %s, within or around another volume: use another path" $path) -}}
{{- end -}}
{{- end -}}
{{- range $all -}}
{{- $value := index . 0 -}}
{{- $path := index . 1 -}}
{{- if regexMatch "^(/(tmp|dev|dev/shm)$|/(proc|sys|usr|bin|sbin|lib|lib64|etc|run|scripts)(/|$))" $path -}}
{{- fail (printf "%s is %s, which containers use for other files: use another path" $value $path) -}}
{{- end -}}
{{- end -}}
{{- if and (include "lockstep.hasData" .) (include "lockstep.isWithin" (list $checkpoints $data)) -}}
{{- fail (printf "checkpoints.path is %s, within dataset.path, which is read-only: use another path" $checkpoints) -}}
{{- end -}}
{{- end -}}

{{- /* Takes two paths. Not empty if the first is the second or below it. */ -}}
{{- define "lockstep.isWithin" -}}
{{- if hasPrefix (printf "%s/" (index . 1)) (printf "%s/" (clean (index . 0))) -}}true{{- end -}}
{{- end -}}

{{- /* The values of an option, from `--option value` and `--option=value`. Programs use the last one. Takes the option and
a list of arguments, returns {"values": [...]}. */ -}}
{{- define "lockstep.valuesOf" -}}
{{- $option := index . 0 -}}
{{- $args := index . 1 | default list -}}
{{- $values := list -}}
{{- range $i, $arg := $args -}}
{{- if eq $arg $option -}}
{{- $values = append $values (index (append $args "") (add1 $i)) -}}
{{- else if hasPrefix (printf "%s=" $option) $arg -}}
{{- $values = append $values (trimPrefix (printf "%s=" $option) $arg) -}}
{{- end -}}
{{- end -}}
{{- dict "values" $values | toJson -}}
{{- end -}}

{{- /* Arguments of programs: as in the job's template. */ -}}
{{- define "lockstep.checkArguments" -}}
{{- $checkpoints := .Values.checkpoints.path -}}
{{- $evaluator := .Values.evaluator -}}
{{- $serve := .Values.serve -}}
{{- /* Options that the chart sets, and what to do instead. */ -}}
{{- $ofChart := dict
      "jobs[].args" (dict "--strategy" "use cluster.parameterServers instead")
      "evaluator.args" (dict "--follow" "use checkpoints.path instead" "--model" "leave it out")
      "serve.args" (dict "--model" "use serve.model instead" "--model-name" "use jobs[].name instead"
        "--rest-api-port" "use serve.port instead")
-}}
{{- /* Options with a path that must lie in a volume, and the volume. What a pod writes elsewhere is lost with the pod. */ -}}
{{- $paths := dict
      "jobs[].args" (dict "--model-dir" "checkpoints" "--backup-dir" "checkpoints" "--csv-log" "checkpoints"
        "--tensorboard-dir" "checkpoints")
      "evaluator.args" (dict "--eval-dir" "checkpoints" "--export-dir" "checkpoints" "--follow-backups" "checkpoints"
        "--data-dir" "dataset")
-}}
{{- range $option := list "--job_name" "--task_index" "--ps_hosts" "--worker_hosts" "--master_hosts" -}}
{{- $_ := set (get $ofChart "jobs[].args") $option "use cluster.workers and cluster.parameterServers instead" -}}
{{- end -}}
{{- range $option, $volume := get $paths "jobs[].args" -}}
{{- $variable := printf "LOCKSTEP_%s" (trimPrefix "--" $option | replace "-" "_" | upper) -}}
{{- $root := (index $.Values $volume).path -}}
{{- $path := get ($.Values.settings.env | default dict) $variable -}}
{{- if and $path (not (include "lockstep.isWithin" (list $path $root))) -}}
{{- fail (printf "settings.env has %s %s, outside of the volume at %s.path: use %s or a path below it, or leave it out"
      $variable $path $volume $root) -}}
{{- end -}}
{{- if hasKey ($.Values.settings.secretEnv | default dict) $variable -}}
{{- fail (printf "settings.secretEnv has %s, whose path must be known: set it in settings.env, to a path in %s.path"
      $variable $volume) -}}
{{- end -}}
{{- end -}}
{{- $all := list (list "evaluator.args" $evaluator.args) (list "serve.args" $serve.args) -}}
{{- range .Values.jobs -}}
{{- $all = append $all (list "jobs[].args" .args) -}}
{{- end -}}
{{- range $all -}}
{{- $value := index . 0 -}}
{{- $args := index . 1 -}}
{{- range $option, $remedy := index $ofChart $value -}}
{{- if (include "lockstep.valuesOf" (list $option $args) | fromJson).values -}}
{{- fail (printf "%s has %s, which the chart sets: %s" $value $option $remedy) -}}
{{- end -}}
{{- end -}}
{{- range $option, $volume := index $paths $value -}}
{{- $root := (index $.Values $volume).path -}}
{{- range $path := (include "lockstep.valuesOf" (list $option $args) | fromJson).values -}}
{{- if not (include "lockstep.isWithin" (list $path $root)) -}}
{{- fail (printf "%s has %s %s, outside of the volume at %s.path: use %s or a path below it, or omit the option"
      $value $option $path $volume $root) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $exported := regexFind "^export/[A-Za-z0-9_]+" (default "" $serve.model) | trimPrefix "export/" -}}
{{- $exportDir := (include "lockstep.valuesOf" (list "--export-dir" $evaluator.args) | fromJson).values -}}
{{- if and $serve.enabled $evaluator.enabled $exported (not $exportDir) -}}
{{- $exporters := last (include "lockstep.valuesOf" (list "--export" $evaluator.args) | fromJson).values | default "" -}}
{{- if not (has $exported (splitList "," (toString $exporters))) -}}
{{- fail (printf "serve.model is %s, but the evaluator exports no %s: add \"--export\", \"%s\" to evaluator.args"
      $serve.model $exported $exported) -}}
{{- end -}}
{{- end -}}
{{- $followed := (include "lockstep.valuesOf" (list "--follow-backups" $evaluator.args) | fromJson).values -}}
{{- $followed = last $followed | default (printf "%s/backup" $checkpoints) -}}
{{- range .Values.jobs -}}
{{- $modelDir := (include "lockstep.valuesOf" (list "--model-dir" .args) | fromJson).values -}}
{{- $modelDir = last $modelDir | default $checkpoints -}}
{{- if and $evaluator.enabled (ne (clean $modelDir) $checkpoints) -}}
{{- fail (printf "jobs[].args has --model-dir %s, but the evaluator follows %s: omit the option" $modelDir $checkpoints) -}}
{{- end -}}
{{- $served := include "lockstep.served" $ -}}
{{- if and $serve.enabled (not (include "lockstep.isWithin" (list $served (clean $modelDir)))) -}}
{{- fail (printf "jobs[].args has --model-dir %s, but the server takes models from %s: set serve.model to a path in that directory, relative to checkpoints.path, or omit the option"
      $modelDir $served) -}}
{{- end -}}
{{- $backups := last (include "lockstep.valuesOf" (list "--backup-dir" .args) | fromJson).values -}}
{{- if and $evaluator.enabled $backups (ne (clean (toString $backups)) (clean $followed)) -}}
{{- fail (printf "jobs[].args has --backup-dir %s, but the evaluator follows %s: add --follow-backups %s to evaluator.args"
      $backups $followed $backups) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A service mesh sidecar would keep Jobs from completing and intercept traffic of workers. */ -}}
{{- define "lockstep.podMetadata" -}}
labels:
  name: {{ .name }}
  job: {{ .role }}
  task: "{{ .task }}"
  {{- if .mountsCheckpoints }}
  checkpoint-claim: {{ .name }}-checkpoints
  {{- end }}
  sidecar.istio.io/inject: "false"
annotations:
  sidecar.istio.io/inject: "false"
  linkerd.io/inject: disabled
  {{- if has .role (list "worker" "ps") }}
  prometheus.io/scrape: "true"
  prometheus.io/port: "{{ int .root.Values.cluster.statusPort }}"
  {{- end }}
{{- end -}}

{{- /* Permissions and placement of all pods. */ -}}
{{- define "lockstep.podBasics" -}}
{{- $cluster := .root.Values.cluster -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- if $cluster.runAsUser }}
  runAsUser: {{ int $cluster.runAsUser }}
  runAsGroup: {{ int $cluster.runAsUser }}
  fsGroup: {{ int $cluster.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $cluster.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
tolerations:
{{- range $cluster.tolerations }}
- {{ toJson . }}
{{- end }}
# Kubernetes' own default is five minutes.
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: {{ int $cluster.unreachableAfter }}}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: {{ int $cluster.unreachableAfter }}}
{{- $packed := and (has .role (list "worker" "ps")) (eq $cluster.affinity "pack") }}
{{- if or .mountsCheckpoints $packed }}
affinity:
  podAffinity:
    {{- if .mountsCheckpoints }}
    # The volume can be attached to one node only: pods that mount it are scheduled to that node.
    requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {checkpoint-claim: {{ .name }}-checkpoints}
    {{- end }}
    {{- if $packed }}
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {{ include "lockstep.allTasks" . }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* Selects the pods of all tasks of a job. */ -}}
{{- define "lockstep.allTasks" -}}
{{- if .root.Values.cluster.parameterServers -}}
{matchLabels: {name: {{ .name | quote }}}, matchExpressions: [{key: job, operator: In, values: [worker, ps]}]}
{{- else -}}
{matchLabels: {name: {{ .name | quote }}, job: worker}}
{{- end -}}
{{- end -}}

{{- /* What a failed pod means for its Job. Takes the container's name. */ -}}
{{- define "lockstep.podFailurePolicy" -}}
rules:
# Invalid options, model or data: a retry cannot help.
- action: FailJob
  onExitCodes: {containerName: {{ . }}, operator: In, values: [64, 65]}
# The node was drained, or others are missing: not a failure of this pod.
- action: Ignore
  onPodConditions: [{type: DisruptionTarget, status: "True"}]
- action: Ignore
  onExitCodes: {containerName: {{ . }}, operator: In, values: [75]}
{{- end -}}

{{- /* Image and permissions of all containers. */ -}}
{{- define "lockstep.containerBasics" -}}
image: {{ include "lockstep.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Downloads the data before a pod's container starts. */ -}}
{{- define "lockstep.fetchData" -}}
{{- $dataset := .root.Values.dataset -}}
initContainers:
- name: fetch
  {{- include "lockstep.containerBasics" . | nindent 2 }}
  # Each file is renamed into place once its SHA-256 matches.
  command: [fetch_data.sh, {{ $dataset.download }}, {{ $dataset.path | quote }}]
  {{- with $dataset.mirror }}
  env:
  - {name: LOCKSTEP_DATA_MIRROR, value: {{ . | quote }}}
  {{- end }}
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {cpu: "1", memory: 256Mi}
  volumeMounts:
  - {name: data, mountPath: {{ $dataset.path | quote }}}
  - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- /* How many tasks of each role a job has. */ -}}
{{- define "lockstep.taskCounts" -}}
{{- dict "worker" (int .Values.cluster.workers) "ps" (int .Values.cluster.parameterServers) | toJson -}}
{{- end -}}

{{- define "lockstep.tfConfig" -}}
{{- $cluster := dict -}}
{{- range $role, $count := include "lockstep.taskCounts" .root | fromJson -}}
{{- $hosts := list -}}
{{- range $i := until (int $count) -}}
{{- $hosts = append $hosts (printf "%s-%s-%d:%d" $.name $role $i (int $.root.Values.cluster.port)) -}}
{{- end -}}
{{- if $hosts -}}{{- $cluster = set $cluster $role $hosts -}}{{- end -}}
{{- end -}}
{{- dict "cluster" $cluster "task" (dict "type" .role "index" .task) | toJson -}}
{{- end -}}

{{- define "lockstep.workerPod" -}}
{{- $values := .root.Values -}}
{{- $cluster := $values.cluster -}}
{{- $gpus := include "lockstep.gpus" .root | int -}}
{{- $ranks := include "lockstep.ranks" .root | int -}}
{{- $hasData := include "lockstep.hasData" .root -}}
{{- $ownShm := or $gpus (gt $ranks 1) -}}
{{- $secrets := keys ($values.settings.secretVolumes | default dict) | sortAlpha -}}
restartPolicy: Never
terminationGracePeriodSeconds: {{ int $values.settings.gracePeriod }}
{{ include "lockstep.podBasics" . }}
{{- with $cluster.runtimeClass }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- if eq $cluster.affinity "spread" }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector: {{ include "lockstep.allTasks" . }}
{{- end }}
{{- if $values.dataset.download }}
{{ include "lockstep.fetchData" . }}
{{- end }}
containers:
- name: trainer
  {{- include "lockstep.containerBasics" . | nindent 2 }}
  command: [lockstep, launch, --]
  args: {{ concat (list .job.program) (.job.args | default list) | toJson }}
  env:
  - name: TF_CONFIG
    value: {{ include "lockstep.tfConfig" . | quote }}
  - {name: MODEL_DIR, value: {{ $values.checkpoints.path | quote }}}
  {{- if $hasData }}
  - {name: DATA_DIR, value: {{ $values.dataset.path | quote }}}
  {{- end }}
  {{- with $values.settings.epochs }}
  - {name: NUM_TRAIN_EPOCH, value: "{{ int . }}"}
  {{- end }}
  {{- with $values.settings.batchSize }}
  - {name: BATCH_SIZE, value: "{{ int . }}"}
  {{- end }}
  {{- if $gpus }}
  - {name: LOCKSTEP_DEVICE, value: cuda}
  {{- end }}
  - {name: LOCKSTEP_RANKS_PER_WORKER, value: "{{ $ranks }}"}
  - {name: LOCKSTEP_RENDEZVOUS_TIMEOUT, value: "{{ int $values.settings.rendezvousTimeout }}"}
  - {name: LOCKSTEP_LEAVE_TIMEOUT, value: "{{ max 1 (sub (int $values.settings.gracePeriod) 10) }}"}
  - {name: LOCKSTEP_JOB_NAME, value: {{ .name | quote }}}
  # Tells this Job's later pods from another job in the same directory.
  - name: LOCKSTEP_JOB_ID
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['controller-uid']"}}
  {{- if $cluster.parameterServers }}
  - {name: LOCKSTEP_STRATEGY, value: parameter-server}
  {{- end }}
  {{- with $cluster.minWorkers }}
  - {name: LOCKSTEP_MIN_WORKERS, value: "{{ int . }}"}
  {{- end }}
  - {name: LOCKSTEP_STATUS_PORT, value: "{{ int $cluster.statusPort }}"}
  - {name: LOCKSTEP_JOB_TOKEN_FILE, value: /run/secrets/lockstep/token}
  {{- range $variable, $value := $values.settings.env }}
  - {name: {{ $variable }}, value: {{ $value | quote }}}
  {{- end }}
  {{- range $variable, $source := $values.settings.secretEnv }}
  {{- $parts := splitList "/" $source }}
  - name: {{ $variable }}
    valueFrom: {secretKeyRef: {name: {{ index $parts 0 | quote }}, key: {{ index $parts 1 | quote }}}}
  {{- end }}
  ports:
  - {name: rendezvous, containerPort: {{ int $cluster.port }}}
  - {name: status, containerPort: {{ int $cluster.statusPort }}}
  readinessProbe:
    httpGet: {path: /healthz, port: {{ int $cluster.statusPort }}}
    periodSeconds: 5
    timeoutSeconds: 5
  # Restarts only a launcher that has been unhealthy for longer than the rendezvous timeout.
  livenessProbe:
    httpGet: {path: /healthz, port: {{ int $cluster.statusPort }}}
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: {{ add (div (int $values.settings.rendezvousTimeout) 30) 4 }}
  resources:
    requests: {cpu: {{ $cluster.resources.cpuRequest | quote }}, memory: {{ $cluster.resources.memoryRequest | quote }}
      {{- with $cluster.resources.ephemeralStorage }}, ephemeral-storage: {{ . | quote }}{{ end }}}
    {{- if or $cluster.resources.cpuLimit $cluster.resources.memoryLimit $gpus $cluster.resources.ephemeralStorage }}
    limits:
      {{- with $cluster.resources.cpuLimit }}
      cpu: {{ . | quote }}
      {{- end }}
      {{- with $cluster.resources.memoryLimit }}
      memory: {{ . | quote }}
      {{- end }}
      {{- with $cluster.resources.ephemeralStorage }}
      ephemeral-storage: {{ . | quote }}
      {{- end }}
      {{- if $gpus }}
      nvidia.com/gpu: {{ $gpus }}
      {{- end }}
    {{- end }}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: job-token, mountPath: /run/secrets/lockstep, readOnly: true}
  {{- if $ownShm }}
  - {name: shm, mountPath: /dev/shm}
  {{- end }}
  {{- range $i, $secret := $secrets }}
  - {name: secret-{{ add1 $i }}, mountPath: {{ get $values.settings.secretVolumes $secret | quote }}, readOnly: true}
  {{- end }}
  {{- if .mountsCheckpoints }}
  - {name: checkpoints, mountPath: {{ $values.checkpoints.path | quote }}}
  {{- end }}
  {{- if $hasData }}
  - {name: data, mountPath: {{ $values.dataset.path | quote }}, readOnly: true}
  {{- end }}
volumes:
- name: tmp
  emptyDir: {}
- name: job-token
  secret: {secretName: {{ .name }}-job-token, defaultMode: 0440}
{{- if $ownShm }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ $cluster.resources.shm | quote }}}
{{- end }}
{{- range $i, $secret := $secrets }}
- name: secret-{{ add1 $i }}
  secret: {secretName: {{ $secret | quote }}, defaultMode: 0440}
{{- end }}
{{- if .mountsCheckpoints }}
- name: checkpoints
  persistentVolumeClaim: {claimName: {{ .name }}-checkpoints}
{{- end }}
{{- if $values.dataset.claim }}
- name: data
  persistentVolumeClaim: {claimName: {{ $values.dataset.claim | quote }}}
{{- else if $values.dataset.download }}
- name: data
  emptyDir: {}
{{- end }}
{{- end -}}
