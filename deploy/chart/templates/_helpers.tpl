{{- /* Where everything namespaced goes. */ -}}
{{- define "agent-sandbox.namespace" -}}
{{ .Values.namespace.name | default .Release.Namespace }}
{{- end }}

{{- define "agent-sandbox.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A flag's value; Helm reads every number as a floating one, and prints a large one with an exponent. */ -}}
{{- define "agent-sandbox.flag" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}
