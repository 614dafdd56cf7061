{{- /* Names are fixed: a node has one daemon and a cluster one leader, and the policies speak of these accounts. */ -}}

{{- define "ebbtide.image" -}}
{{- $name := required "image.repository: name your own build of the image (docs/deployment.md); there is no public one" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The port of a configuration's metricsListen; empty where nothing listens, or only for the node itself. */ -}}
{{- define "ebbtide.metricsPort" -}}
{{- $listen := .metricsListen | default "" -}}
{{- if not (regexMatch "^(127\\.|\\[::1\\])" $listen) -}}
{{ regexFind "[0-9]+$" $listen }}
{{- end -}}
{{- end -}}

{{- /* The controller's journals and its Lease are where its rights are. */ -}}
{{- define "ebbtide.outageConfig" -}}
{{ mustMergeOverwrite (deepCopy .Values.outage.config) (dict "namespace" .Release.Namespace) | toYaml }}
{{- end -}}

{{- /* What a kind of pod says beside the rest. Takes a part of the values: node or outage. */ -}}
{{- define "ebbtide.podMetadata" -}}
labels:
  app.kubernetes.io/name: {{ .name }}
  {{- with .part.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $restart := .part.restartOnChange | ternary (dict "checksum/config" (sha256sum .config)) dict }}
{{- with merge $restart .part.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Whether to make a Prometheus operator's object: asked for, or there is such a kind in this cluster. */ -}}
{{- define "ebbtide.monitored" -}}
{{- if or (eq (toString .asked) "true") (and (eq (toString .asked) "auto") (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind))) -}}
yes
{{- end -}}
{{- end -}}

{{- /* What a node's configuration asks logind for: all periods and the reserve, in whole seconds. */ -}}
{{- define "ebbtide.neededSeconds" -}}
{{- $units := dict "h" 3600 "m" 60 "s" 1 "ms" 0.001 "us" 0.000001 "µs" 0.000001 "ns" 0.000000001 -}}
{{- $sum := 0.0 -}}
{{- range .shutdownGracePeriodByPodPriority -}}
{{- $sum = addf $sum .shutdownGracePeriodSeconds -}}
{{- end -}}
{{- $period := empty .shutdownGracePeriodByPodPriority | ternary (.shutdownGracePeriod | default "0s") "0s" -}}
{{- range list $period (.reserve | default "5s") -}}
{{- range regexFindAll "[0-9.]+(h|ms|m|s|us|µs|ns)" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[a-zµ]+$" .))) -}}
{{- end -}}
{{- end -}}
{{ ceil $sum }}
{{- end -}}
