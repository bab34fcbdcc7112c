{{- /* The settings, whole. */ -}}
{{- define "muster.configuration" -}}
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: {{ .Release.Namespace | quote }}
{{ toYaml .Values.settings }}
{{- end }}

{{- /* The image, by its digest where there is one. */ -}}
{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The port in an address like ":8081" or "0.0.0.0:8081". */ -}}
{{- define "muster.port" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}
